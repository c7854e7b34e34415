//! The optimum by another algorithm, invariants after every pivot, and corruption of every word of an arc.

use super::*;

/// The cheapest flow by successive shortest paths, with no tree and no potentials.
fn cheapest(size: InstanceSize, seed: u64) -> i64 {
    let arcs: Vec<(i64, usize, usize)> = (0..size.arcs).map(|k| size.arc(seed, k)).collect();
    let mut left: Vec<i64> = (0..=size.nodes)
        .map(|v| if v == 0 { 0 } else { size.supply(seed, v) })
        .collect();
    let mut flows = vec![0i64; arcs.len()];
    while let Some(from) = left.iter().position(|s| *s > 0) {
        // Bellman and Ford's, over arcs and, where there is flow, backwards.
        let (mut far, mut by) = (vec![i64::MAX / 2; size.nodes + 1], vec![(NONE, true); size.nodes + 1]);
        far[from] = 0;
        for _ in 0..=size.nodes {
            for (k, (cost, tail, head)) in arcs.iter().enumerate() {
                if far[*tail] + cost < far[*head] {
                    (far[*head], by[*head]) = (far[*tail] + cost, (k, true));
                }
                if flows[k] > 0 && far[*head] - cost < far[*tail] {
                    (far[*tail], by[*tail]) = (far[*head] - cost, (k, false));
                }
            }
        }
        let to = (1..=size.nodes)
            .filter(|v| left[*v] < 0)
            .min_by_key(|v| far[*v])
            .unwrap();
        let (mut most, mut at, mut steps) = (left[from].min(-left[to]), to, Vec::new());
        while at != from {
            let (k, forwards) = by[at];
            if !forwards {
                most = most.min(flows[k]);
            }
            steps.push((k, forwards));
            at = if forwards { arcs[k].1 } else { arcs[k].2 };
        }
        for (k, forwards) in steps {
            flows[k] += if forwards { most } else { -most };
        }
        left[from] -= most;
        left[to] += most;
    }
    flows.iter().zip(&arcs).map(|(flow, (cost, ..))| flow * cost).sum()
}

#[test]
fn the_optimum_is_the_one_that_another_algorithm_finds() {
    for (nodes, each, seed) in [(4, 3, 1), (9, 4, 2), (24, 5, 3), (41, 8, 4)] {
        let size = InstanceSize {
            nodes,
            arcs: nodes * each,
        };
        let mut simplex = Simplex::new(size, seed).unwrap();
        while simplex.pivot().unwrap() {
            assert!(simplex.pivots < 100_000);
        }
        simplex.settle();
        assert_eq!(
            simplex.verify().unwrap(),
            cheapest(size, seed),
            "{nodes} nodes, seed {seed}"
        );
    }
}

#[test]
fn the_tree_is_right_after_every_pivot_and_the_flow_never_more_expensive() {
    let size = InstanceSize { nodes: 60, arcs: 480 };
    let mut before = i64::MAX;
    for pivots in 0..150 {
        let mut simplex = Simplex::new(size, 9).unwrap();
        for _ in 0..pivots {
            simplex.pivot().unwrap();
        }
        simplex.settle();
        let cost = simplex.verify().unwrap();
        assert!(cost <= before, "after {pivots} pivots");
        before = cost;
    }
}

#[test]
fn a_changed_word_of_any_arc_is_found() {
    let size = Simplex::size_fitting(1 << 20, 16);
    let mut simplex = Simplex::new(size, 5).unwrap();
    (0..500).for_each(|_| assert!(simplex.pivot().unwrap()));
    simplex.settle();
    simplex.verify().unwrap();
    for number in [0, 7, size.arcs / 2, size.arcs + 3] {
        let good = simplex.arcs[number];
        let words: [fn(&mut Arc); 5] = [
            |arc| arc.cost ^= 4,
            |arc| arc.tail ^= 4,
            |arc| arc.next_out ^= 4,
            |arc| arc.next_in ^= 4,
            |arc| arc.flow ^= 4,
        ];
        for (which, change) in words.iter().enumerate() {
            change(&mut simplex.arcs[number]);
            let error = simplex.verify().unwrap_err();
            assert_eq!(error.exit_code(), 3, "arc {number}, word {which}");
            simplex.arcs[number] = good;
        }
    }
}

#[test]
fn an_instance_fills_the_memory_it_is_given() {
    let size = Simplex::size_fitting(64 << 20, 64);
    let bytes = (size.arcs + size.nodes) * ARC_BYTES + (size.nodes + 1) * NODE_BYTES;
    assert!((63 << 20..=64 << 20).contains(&bytes), "{bytes}");
    assert!((1..=size.nodes).map(|v| size.supply(3, v)).sum::<i64>() == 0);
}
