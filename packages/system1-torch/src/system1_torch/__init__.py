"""What every torch model shares. Import from the modules: this one must stay free of torch."""
