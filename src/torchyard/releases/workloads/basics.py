"""Workloads that need no torch: the interpreter, the imports, arrays, classic learners."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import re
import sqlite3
import ssl
import sys
import zlib
from typing import Any

from . import checks

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def interpreter() -> dict[str, Any]:
    """The Python itself: TLS, SQLite, compression."""
    connection = sqlite3.connect(":memory:")
    total = connection.execute("select sum(value) from (select 40 as value union select 2)")
    checks.expect(total.fetchone()[0] == 42, "SQLite can't add")
    content = b"torchyard" * 1000
    packed = zlib.compress(content)
    checks.expect(zlib.decompress(packed) == content, "zlib loses bytes")
    ssl.create_default_context()
    return {
        "python": sys.version.split()[0],
        "openssl": ssl.OPENSSL_VERSION,
        "compression": round(len(content) / len(packed), 1),
    }


def requested_imports(requested: list[str]) -> dict[str, Any]:
    """What the environment requests is installed, and its modules can be imported."""
    imported, broken = 0, []
    for line in requested:
        match = _NAME.match(line)
        if match is None:
            continue
        try:
            distribution = importlib.metadata.distribution(match[0])
        except importlib.metadata.PackageNotFoundError:
            broken.append(f"{match[0]} is not installed")
            continue
        for module in _modules(distribution):
            try:
                importlib.import_module(module)
                imported += 1
            except BaseException as error:
                broken.append(f"{module}: {type(error).__name__}: {' '.join(str(error).split())}")
    checks.expect(not broken, "; ".join(broken)[:500])
    if not imported:
        checks.skip("the environment requests no package that has modules")
    return {"modules": imported}


def _modules(distribution: Any) -> list[str]:
    """The distribution's importable modules at the top; none that begins with an underscore."""
    listed = distribution.read_text("top_level.txt")
    if listed is not None:
        names = listed.split()
    else:
        files = [file for file in distribution.files or [] if file.suffix == ".py"]
        names = [
            file.parts[0] if len(file.parts) > 1 else file.stem
            for file in files
            if len(file.parts) == 1 or file.parts[1] == "__init__.py"
        ]
    modules = sorted({name for name in names if re.fullmatch(r"[A-Za-z]\w*", name)})
    modules = [name for name in modules if name not in ("tests", "test", "docs", "examples")]
    return [name for name in modules if importlib.util.find_spec(name) is not None]


def numpy_algebra() -> dict[str, Any]:
    """A linear system that is solved, and a matrix that its factors give back."""
    numpy = checks.need("numpy")
    generator = numpy.random.RandomState(7)
    matrix, expected = generator.rand(200, 200) + 10 * numpy.eye(200), generator.rand(200)
    solved = numpy.linalg.solve(matrix, matrix @ expected)
    left, values, right = numpy.linalg.svd(matrix)
    error = float(numpy.abs((left * values) @ right - matrix).max())
    return {
        "solve_error": checks.close("the solution", abs(solved - expected).max(), 0.0, 1e-9),
        "svd_error": checks.close("the factors' product", error, 0.0, 1e-9),
    }


def pandas_table() -> dict[str, Any]:
    """A table that is grouped, and read back from CSV."""
    import io

    pandas = checks.need("pandas")
    table = pandas.DataFrame({"key": ["a", "b"] * 500, "value": range(1000)})
    sums = table.groupby("key")["value"].sum()
    checks.expect(int(sums["a"]) == 249_500 and int(sums["b"]) == 250_000, f"sums are {sums}")
    again = pandas.read_csv(io.StringIO(table.to_csv(index=False)))
    checks.expect(bool((again == table).all().all()), "the table read back differs")
    return {"rows": len(again)}


def sklearn_digits() -> dict[str, Any]:
    """A classifier of scikit-learn on real handwritten digits."""
    linear = checks.need("sklearn.linear_model", "scikit-learn")
    inputs, labels, test_inputs, test_labels = checks.digits()
    model = linear.LogisticRegression(max_iter=500).fit(inputs, labels)
    accuracy = float((model.predict(test_inputs) == test_labels).mean())
    return {"accuracy": checks.at_least("accuracy", accuracy, 0.95)}


def lightgbm_digits() -> dict[str, Any]:
    """Boosted trees of LightGBM on the same digits."""
    lightgbm = checks.need("lightgbm")
    inputs, labels, test_inputs, test_labels = checks.digits()
    model = lightgbm.LGBMClassifier(n_estimators=40, n_jobs=2, random_state=7, verbosity=-1)
    model.fit(inputs, labels)
    accuracy = float((model.predict(test_inputs) == test_labels).mean())
    return {"accuracy": checks.at_least("accuracy", accuracy, 0.93)}


def keras_digits() -> dict[str, Any]:
    """A small network of TensorFlow's Keras on the same digits."""
    tensorflow = checks.need("tensorflow")
    inputs, labels, test_inputs, test_labels = checks.digits()
    tensorflow.random.set_seed(7)
    layers = tensorflow.keras.layers
    model = tensorflow.keras.Sequential(
        [layers.Dense(64, activation="relu", input_shape=(64,)), layers.Dense(10)]
    )
    loss = tensorflow.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss)
    model.fit(inputs, labels, epochs=20, batch_size=64, verbose=0)
    accuracy = float((model.predict(test_inputs, verbose=0).argmax(1) == test_labels).mean())
    return {"accuracy": checks.at_least("accuracy", accuracy, 0.93)}


def pyspark_session() -> dict[str, Any]:
    """A local session of Spark: a sum by groups in its Java machine, a map by Python's workers."""
    import os
    import shutil

    sql = checks.need("pyspark.sql", "pyspark")
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        checks.skip("PySpark needs a Java machine, and there is no `java`")
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    try:
        table = session.range(1000).selectExpr("id % 2 as key", "id as value")
        sums = {row[0]: row[1] for row in table.groupBy("key").sum("value").collect()}
        numbers = session.sparkContext.parallelize(range(1000), 2)
        squares = numbers.map(lambda number: number * number).sum()
    finally:
        session.stop()
    checks.expect(sums == {0: 249_500, 1: 250_000}, f"the sums are {sums}")
    checks.expect(squares == 332_833_500, f"the squares sum to {squares}")
    return {"rows": 1000, "groups": len(sums), "squares": squares}


def mlflow_round_trip() -> dict[str, Any]:
    """A metric, a parameter and a file, logged to the job's server and read back."""
    import os
    import tempfile
    from pathlib import Path

    mlflow = checks.need("mlflow")
    if not os.environ.get("MLFLOW_TRACKING_URI"):
        checks.skip("the job has no tracking server")
    client = mlflow.MlflowClient()
    with mlflow.start_run(nested=True, run_name="validation") as run:
        for step in range(5):
            mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
        mlflow.log_param("lr", 0.125)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "note.json"
            file.write_text(json.dumps({"answer": 42}), encoding="utf-8")
            mlflow.log_artifact(str(file))
    points = client.get_metric_history(run.info.run_id, "loss")
    stored = client.get_run(run.info.run_id).data
    checks.expect(len(points) == 5, f"{len(points)} of 5 points were read back")
    checks.close("the last point", points[-1].value, 0.2, 1e-12)
    checks.expect(stored.params.get("lr") == "0.125", f"the parameter is {stored.params}")
    names = [entry.path for entry in client.list_artifacts(run.info.run_id)]
    checks.expect("note.json" in names, f"the files read back are {names}")
    return {"points": len(points), "files": len(names)}
