"""Fashion-MNIST and CIFAR-10: small files of the published formats, and harmful pickles."""

import gzip
import io
import pickle
import struct
import tarfile

import numpy as np
import pytest

from dpanalysis import datasets

RNG = np.random.default_rng(0)


def idx(array):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


def test_fashion_mnist_reads_idx_files(tmp_path):
    images = RNG.integers(0, 256, (4, 28, 28), dtype=np.uint8)
    labels = np.array([3, 9, 0, 1], dtype=np.uint8)
    folder = tmp_path / "fashion_mnist"
    folder.mkdir()
    for part, kept in (("train", slice(3)), ("t10k", slice(3, None))):
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images[kept])))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels[kept]))
    data = datasets.load("fashion_mnist", tmp_path)
    assert data.X.dtype == np.float32 and data.n == 3 and data.name == "fashion_mnist"
    np.testing.assert_array_equal(data.X, images[:3].reshape(3, -1) / np.float32(255))
    np.testing.assert_array_equal(data.y_test, [1])
    assert [bound.radius for bound in data.row_bound] == [784.0, 28.0] and data.n_classes == 10
    assert datasets.fashion_mnist(folder, signed=True).X.min() >= -1.0
    with pytest.raises(FileNotFoundError, match="fashion"):
        datasets.fashion_mnist(tmp_path / "nowhere")


def batches(protocol=2, rows=2, **changes):
    """The six batches as published: pickled dicts with keys of bytes, and further fields."""
    made = {}
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        pixels = RNG.integers(0, 256, (rows, 3072), dtype=np.uint8)
        content = {
            b"batch_label": b"training batch 1 of 5",
            b"labels": RNG.integers(0, 10, rows).tolist(),
            b"data": pixels,
            b"filenames": [b"leptodactylus_s_000004.png"] * rows,
            **changes,
        }
        made[name] = pickle.dumps(content, protocol=protocol)
    return made


def as_python_2(content):
    """A pickle of protocol 2 as Python 2 writes it: raw byte strings, an old module."""
    out = io.BytesIO()

    class Old(pickle._Pickler):
        dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012

        def save_bytes(self, obj):
            self.write(pickle.BINSTRING + struct.pack("<i", len(obj)) + obj)
            self.memoize(obj)

        dispatch[bytes] = save_bytes

    Old(out, protocol=2).dump(content)
    return out.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def write(folder, contents):
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("layout", ["batches", "sub-folder", "archive", "environment"])
def test_cifar10_reads_the_published_layouts(layout, tmp_path, monkeypatch):
    contents = {
        name: as_python_2(pickle.loads(content)) for name, content in batches(protocol=4).items()
    }
    path = tmp_path / "data"
    if layout == "archive":
        path.mkdir()
        with tarfile.open(path / "cifar-10-python.tar.gz", "w:gz") as tar:
            for name, content in contents.items():
                info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    else:
        write(path if layout == "batches" else path / "cifar-10-batches-py", contents)
    if layout == "environment":
        monkeypatch.setenv("DPANALYSIS_DATA", str(path))
        path = None
    data = datasets.cifar10(path)
    read = [pickle.loads(contents[name], encoding="bytes") for name in contents]
    expected = np.concatenate([batch[b"data"] for batch in read[:5]])
    np.testing.assert_array_equal(data.X, expected / np.float32(255))
    np.testing.assert_array_equal(data.y_test, read[5][b"labels"])
    assert data.X.shape == (10, 3072) and data.X_test.shape == (2, 3072)
    assert data.row_bound[0].radius == 3072.0 and data.n_classes == 10


class Harm:
    """An object whose pickle calls a function when it is read."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: Harm(open, str(path), "w"), "asks for .*open"),
        (lambda path: Harm(eval, f"open({str(path)!r}, 'w')"), "asks for builtins.eval"),
        (lambda path: Harm(np.fromfile, str(path)), "asks for numpy"),
        (lambda path: Harm(np.memmap, str(path), np.uint8, "w+"), "asks for numpy"),
    ],
)
def test_a_pickle_that_runs_code_is_refused_before_it_does(harm, message, tmp_path):
    path = tmp_path / "written"
    write(tmp_path / "data", batches(protocol=4, x=harm(path)))
    with pytest.raises(ValueError, match=message):
        datasets.cifar10(tmp_path / "data")
    assert not path.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"changes": {b"labels": [10, 0]}}, "2 labels from 0 to 9"),
        ({"changes": {b"labels": [1]}}, "2 labels from 0 to 9"),
        ({"changes": {b"data": np.zeros((2, 9), np.uint8)}}, "uint8 rows of 3072"),
        ({"changes": {b"data": np.zeros((2, 3072))}}, "uint8 rows of 3072"),
        ({"changes": {b"data": np.array([[print] * 3072] * 2, object)}}, "asks for"),
        ({"cut": 100}, "expected a batch of CIFAR-10"),
    ],
)
def test_damaged_batches_are_named(changes, message, tmp_path):
    made = batches(protocol=4)
    if "changes" in changes:
        content = pickle.loads(made["data_batch_3"])
        made["data_batch_3"] = pickle.dumps({**content, **changes["changes"]}, protocol=4)
    else:
        made["data_batch_3"] = made["data_batch_3"][: changes["cut"]]
    write(tmp_path / "data", made)
    with pytest.raises(ValueError, match=f"data_batch_3: .*{message}"):
        datasets.cifar10(tmp_path / "data")


def test_an_archive_of_something_else_is_refused(tmp_path):
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(gzip.compress(b"no archive"))
    with pytest.raises(ValueError, match="expected the CIFAR-10 batches"):
        datasets.cifar10(tmp_path)
