"""Tuned kernels as files that stand alone: what is exported (`variants`), what its self-test checks (`checks`), which
files a format has (`formats`) and how they come into a folder (`folder`)."""
