"""The report of a calibration: one page with figures, for a person, made from the run's folder."""

from dptext_spark.calibration.report.page import PAGE, PLOTS, write_report

__all__ = ["PAGE", "PLOTS", "write_report"]
