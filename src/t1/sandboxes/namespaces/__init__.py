"""Linux namespaces through bubblewrap: a private machine over the host's /usr, in milliseconds, without a daemon."""
