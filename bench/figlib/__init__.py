# SPDX-License-Identifier: Apache-2.0
"""What scripts/figures.sh is made of: goals, programs, references, one module for each kind of measurement."""
