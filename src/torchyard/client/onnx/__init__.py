"""Models as ONNX files: exporting and scoring them, by jobs."""
