"""Containers through podman or docker: a machine from any image."""
