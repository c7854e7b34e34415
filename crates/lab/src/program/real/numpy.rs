//! NumPy and SciPy: arrays made and thrown away, a sparse matrix times a vector, a Fourier transform there and back.

use super::Real;

/// Size: millions of elements.
pub const NUMPY: Real = Real {
    name: "numpy",
    about: "NumPy and SciPy: arrays, a sparse matrix, FFT",
    runtime: ("python3", "apt install python3, or dnf install python3"),
    packages: &["numpy==2.1.3", "scipy==1.14.1"],
    source: ("job.py", SOURCE),
    compile: &[],
    run: &["{runtime}", "{source}", "{size}", "{seed}"],
    size: (32, 1),
    bytes: (256 << 20, 64 << 20),
    unit_s: 0.6,
};

const SOURCE: &str = r#"
import sys
import numpy as np
import scipy.fft
import scipy.sparse
n, seed = int(sys.argv[1]) * 1_000_000, int(sys.argv[2])
rng = np.random.default_rng(seed)
x = rng.random(n)
for _ in range(8):
    y = np.sqrt(x) * x + 1.0
    assert abs(float(y.min()) - 1.0) < 1.0
rows, per = n // 16, 16
columns = rng.integers(0, rows, rows * per)
matrix = scipy.sparse.csr_matrix(
    (np.ones(rows * per), columns, np.arange(0, rows * per + 1, per)), shape=(rows, rows))
v = np.ones(rows)
for _ in range(10):
    v = matrix @ v
    assert v[0] == v[-1]
    v /= per
assert np.allclose(v, 1.0)
back = scipy.fft.irfft(scipy.fft.rfft(x), n=n)
assert np.allclose(back, x)
print("right")
"#;
