//! Run time as a function of the layout, and how far such a function is off for a layout that it has not seen.
//!
//! | model | run time is |
//! | --- | --- |
//! | share | a + b·(share of the memory on large pages): every byte counts alike |
//! | cubic | a polynomial of degree 3 of that share, as Mosalloc's work fits run time by polynomials |
//! | windows | a + a number for each window that has large pages |
//!
//! Each is fitted by least squares. Its error is that of cross-validation: each layout is left out in turn, predicted from all the others, and the
//! difference taken as a share of what was measured.

use super::plan::{Plan, Set};

/// A form that the function can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Share,
    Cubic,
    Windows,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::Share, Self::Cubic, Self::Windows];

    pub fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Cubic => "cubic",
            Self::Windows => "windows",
        }
    }

    /// What run time is a linear function of.
    fn inputs(self, plan: &Plan, set: Set) -> Vec<f64> {
        let all = plan.large_bytes(plan.all()).max(1);
        let share = plan.large_bytes(set) as f64 / all as f64;
        let mut inputs = vec![1.0];
        match self {
            Self::Share => inputs.push(share),
            Self::Cubic => inputs.extend([share, share.powi(2), share.powi(3)]),
            Self::Windows => inputs.extend(plan.indicators(set)),
        }
        inputs
    }
}

/// A fitted model.
#[derive(Debug, Clone)]
pub struct Model {
    pub form: Form,
    /// Seconds: of base pages, then one for each input.
    pub coefficients: Vec<f64>,
    /// Their standard errors; infinite with no more measurements than coefficients.
    pub errors: Vec<f64>,
    /// For each layout, what the model says that was fitted without it; `None` if there were too few.
    pub unseen: Vec<Option<f64>>,
    /// Mean of the errors of those, as a share.
    pub mean_error: f64,
    /// The largest of them.
    pub largest_error: f64,
}

impl Model {
    /// Fits to layouts and their run times in seconds. `None` where there are too few, or they do not differ enough.
    pub fn fit(form: Form, plan: &Plan, measured: &[(Set, f64)]) -> Option<Self> {
        let rows: Vec<Vec<f64>> = measured.iter().map(|(set, _)| form.inputs(plan, *set)).collect();
        let values: Vec<f64> = measured.iter().map(|(_, seconds)| *seconds).collect();
        let (coefficients, errors) = least_squares(&rows, &values)?;
        let unseen: Vec<Option<f64>> = (0..rows.len())
            .map(|left_out| {
                let others = |n: &usize| *n != left_out;
                let rest_rows: Vec<_> = (0..rows.len()).filter(others).map(|n| rows[n].clone()).collect();
                let rest_values: Vec<_> = (0..rows.len()).filter(others).map(|n| values[n]).collect();
                least_squares(&rest_rows, &rest_values).map(|(found, _)| product(&rows[left_out], &found))
            })
            .collect();
        let known = unseen
            .iter()
            .zip(&values)
            .filter_map(|(unseen, value)| Some(((*unseen)? - value).abs() / value));
        let known: Vec<f64> = known.collect();
        if known.is_empty() {
            return None;
        }
        Some(Self {
            form,
            coefficients,
            errors,
            unseen,
            mean_error: known.iter().sum::<f64>() / known.len() as f64,
            largest_error: known.iter().copied().fold(0.0, f64::max),
        })
    }

    /// Seconds that a layout takes.
    pub fn predict(&self, plan: &Plan, set: Set) -> f64 {
        product(&self.form.inputs(plan, set), &self.coefficients)
    }
}

/// The layout with the fewest bytes on large pages that is predicted to take at most `slack` more than the fastest (0.01: 1 %). Windows that
/// cost time or do nothing are never in it.
pub fn cheapest(plan: &Plan, windows: &Model, slack: f64) -> Set {
    let gain = |n: usize| -windows.coefficients[n + 1];
    let mut useful: Vec<usize> = (0..plan.windows.len()).filter(|n| gain(*n) > 0.0).collect();
    let best = useful.iter().fold(0, |set: Set, n| set | 1 << n);
    let limit = windows.predict(plan, best) * (1.0 + slack);
    // Those go first that gain least for their bytes. That is greedy, and may keep a window more than would be needed.
    useful.sort_by(|a, b| {
        let density = |n: usize| gain(n) / plan.windows[n].bytes.max(1) as f64;
        density(*a).total_cmp(&density(*b))
    });
    let mut set = best;
    for n in useful {
        let without = set & !(1 << n);
        if windows.predict(plan, without) <= limit {
            set = without;
        }
    }
    set
}

fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Coefficients and their standard errors. `None` if the rows do not determine them.
fn least_squares(rows: &[Vec<f64>], values: &[f64]) -> Option<(Vec<f64>, Vec<f64>)> {
    let count = rows.first()?.len();
    if rows.len() < count {
        return None;
    }
    // The normal equations, and beside them the unit matrix, which becomes their inverse.
    let mut system: Vec<Vec<f64>> = (0..count)
        .map(|i| {
            let left = (0..count).map(|j| rows.iter().map(|row| row[i] * row[j]).sum());
            let right = (0..count).map(|j| f64::from(u8::from(i == j)));
            left.chain(right).collect()
        })
        .collect();
    for column in 0..count {
        let pivot = (column..count).max_by(|a, b| system[*a][column].abs().total_cmp(&system[*b][column].abs()))?;
        if system[pivot][column].abs() < 1e-9 {
            return None;
        }
        system.swap(column, pivot);
        let factor = system[column][column];
        system[column].iter_mut().for_each(|x| *x /= factor);
        let own = system[column].clone();
        for (_, row) in system.iter_mut().enumerate().filter(|(n, _)| *n != column) {
            let factor = row[column];
            row.iter_mut().zip(&own).for_each(|(x, own)| *x -= factor * own);
        }
    }
    let right: Vec<f64> = (0..count)
        .map(|i| rows.iter().zip(values).map(|(row, value)| row[i] * value).sum())
        .collect();
    let coefficients: Vec<f64> = system.iter().map(|row| product(&row[count..], &right)).collect();
    let squares = rows
        .iter()
        .zip(values)
        .map(|(row, value)| (product(row, &coefficients) - value).powi(2));
    let squares: f64 = squares.sum();
    let variance = match rows.len() - count {
        0 => f64::INFINITY,
        free => squares / free as f64,
    };
    let errors = (0..count)
        .map(|i| (variance * system[i][count + i].max(0.0)).sqrt())
        .collect();
    Some((coefficients, errors))
}

#[cfg(test)]
mod tests {
    use memomania_layout::page::Kind;

    use super::*;

    const MB: usize = 1 << 20;

    /// Ten seconds, less what each window gains.
    fn measured(plan: &Plan, gains: &[f64], noise: f64) -> Vec<(Set, f64)> {
        let time = |(n, set): (usize, &Set)| {
            let gained: f64 = product(&plan.indicators(*set), gains);
            // Something that is neither the same everywhere nor random.
            (*set, 10.0 - gained + noise * ((n * 7 % 5) as f64 - 2.0))
        };
        plan.sets.iter().enumerate().map(time).collect()
    }

    #[test]
    fn the_windows_model_finds_what_each_window_gains() {
        let plan = Plan::new(Kind::Thp, [64 * MB, 0], 4).unwrap();
        let gains = [0.0, 3.0, -0.5, 1.0];
        let model = Model::fit(Form::Windows, &plan, &measured(&plan, &gains, 0.0)).unwrap();
        assert!((model.coefficients[0] - 10.0).abs() < 1e-9);
        for (gain, found) in gains.iter().zip(&model.coefficients[1..]) {
            assert!((gain + found).abs() < 1e-9, "{model:?}");
        }
        assert!(model.mean_error < 1e-9 && model.largest_error < 1e-9);
        // One number for all of them cannot know that.
        let share = Model::fit(Form::Share, &plan, &measured(&plan, &gains, 0.0)).unwrap();
        assert!(share.mean_error > 0.05, "{share:?}");
    }

    #[test]
    fn noise_shows_in_the_errors() {
        let plan = Plan::new(Kind::Thp, [64 * MB, 0], 6).unwrap();
        let gains = [0.0, 2.0, 0.0, 0.0, 0.0, 0.0];
        let model = Model::fit(Form::Windows, &plan, &measured(&plan, &gains, 0.02)).unwrap();
        assert!((0.0005..0.01).contains(&model.mean_error), "{model:?}");
        let pays = |n: usize| -model.coefficients[n + 1] > 2.0 * model.errors[n + 1];
        assert!(pays(1) && !(pays(0) && pays(2) && pays(3)), "{model:?}");
    }

    #[test]
    fn the_cheapest_layout_has_what_pays_and_no_more() {
        let plan = Plan::new(Kind::Thp, [64 * MB, 0], 4).unwrap();
        let fitted = |gains: &[f64]| Model::fit(Form::Windows, &plan, &measured(&plan, gains, 0.0)).unwrap();
        assert_eq!(cheapest(&plan, &fitted(&[0.0, 3.0, -0.5, 1.0]), 0.01), 0b1010);
        // What gains less than the slack is let go; together they may not.
        assert_eq!(cheapest(&plan, &fitted(&[0.04, 3.0, 0.01, 1.0]), 0.01), 0b1010);
        assert_eq!(cheapest(&plan, &fitted(&[0.04, 3.0, 0.05, 1.0]), 0.01), 0b1110);
        assert_eq!(cheapest(&plan, &fitted(&[-1.0, -1.0, -0.1, -0.1]), 0.01), 0);
    }

    #[test]
    fn too_little_is_no_model() {
        let plan = Plan::new(Kind::Thp, [2 * MB, 0], 4).unwrap();
        assert_eq!(plan.sets, [0, 1]);
        // Two layouts: left out, one says nothing of the other.
        assert!(Model::fit(Form::Windows, &plan, &[(0, 2.0), (1, 1.0)]).is_none());
        assert!(Model::fit(Form::Cubic, &plan, &[(0, 2.0), (1, 1.0)]).is_none());
        assert!(Model::fit(Form::Share, &plan, &[]).is_none());
    }
}
