# SPDX-License-Identifier: Apache-2.0
"""``python -m tidewire`` runs the program ``tidewire``."""

from _tidewire_program import main

main()
