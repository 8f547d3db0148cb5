"""An attempt from launch to end: reports, heartbeats, takeover, results."""
