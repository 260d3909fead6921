# SPDX-License-Identifier: Apache-2.0
"""The version of this package; equal to that of the library (``tw_version``)."""

__version__ = "0.1.0"
