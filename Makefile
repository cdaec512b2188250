# A thin front for the commands that do the work; every target is one line on purpose.
.PHONY: help check test bench reproduce

help:       ## Show this list
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:.*## /\t/'

check:      ## Lint, types and import contracts
	python3 scripts/verify.py --only environment --only lint --only types --only imports

test:       ## Prove the whole project
	python3 scripts/verify.py

bench:      ## Measure one stream, eight streams and transformers, side by side
	.venv/bin/python scripts/bench.py

reproduce:  ## Re-derive the documentation's tables from the committed records
	.venv/bin/python scripts/reproduce.py
