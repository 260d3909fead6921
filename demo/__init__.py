# SPDX-License-Identifier: Apache-2.0
"""A prefill process and a decode process that share one prompt through Tidewire.

`python -m demo.run --model tiny` is the whole demonstration; `demo/README.md` names the parts.
"""
