//! scikit-learn: gradient boosting and k-means on data of its own making.

use super::Real;

/// Size: thousands of samples of 32 features.
pub const SKLEARN: Real = Real {
    name: "sklearn",
    about: "scikit-learn: gradient boosting and k-means",
    runtime: ("python3", "apt install python3, or dnf install python3"),
    packages: &["scikit-learn==1.5.2", "numpy==2.1.3", "scipy==1.14.1"],
    source: ("job.py", SOURCE),
    compile: &[],
    run: &["{runtime}", "{source}", "{size}", "{seed}"],
    size: (2000, 10),
    bytes: (512 << 20, 1 << 20),
    unit_s: 0.02,
};

const SOURCE: &str = r#"
import sys
import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.ensemble import HistGradientBoostingClassifier
n, seed = int(sys.argv[1]) * 1000, int(sys.argv[2])
rng = np.random.default_rng(seed)
x = rng.random((n, 32))
y = (x[:, 0] + x[:, 1] * x[:, 2] > 0.75).astype(int)
trees = HistGradientBoostingClassifier(max_iter=30, random_state=seed).fit(x, y)
assert trees.score(x[:100_000], y[:100_000]) > 0.9
means = MiniBatchKMeans(n_clusters=16, n_init=1, max_iter=10, random_state=seed).fit(x)
assert len(set(means.labels_[:100_000])) > 1
print("right")
"#;
