"""LAYA for system1. Import from the modules: this one must stay free of torch."""
