"""Commands of ``python -m dpanalysis`` that read and write tables."""
