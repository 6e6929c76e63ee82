"""Kubernetes' control plane in one binary: main.go says which programs it holds, build.py compiles and caches it."""
