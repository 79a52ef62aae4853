"""Real JupyterLab, real Chromium. A package, so that both end before other tests start their own event loops."""
