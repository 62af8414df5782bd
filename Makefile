# Every command of the project; `make` alone lists them.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PY := .venv/bin/python
PORT ?= 8000
UV_COMPILE := .venv/bin/uv pip compile --quiet --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
	--generate-hashes --no-header --no-annotate --no-strip-extras pyproject.toml
# What is installed apart, an extra and a lock each. The development lock holds the packages of all, and gives the versions.
LOCKS := beam vocabulary trainer trainer-gpu serving
# tensorflow-cpu in place of tensorflow
CPU := --extra cpu --override locks/cpu-overrides.txt
PROTOC := $(PY) -m grpc_tools.protoc -I.

# What third parties say at import and no user of ours can act on.
export TF_CPP_MIN_LOG_LEVEL := 3
export PYTHONWARNINGS := ignore:You are using a Python version:FutureWarning,ignore:pkg_resources is deprecated:UserWarning

.PHONY: help setup lock protos architecture settings check test test-slow demo demo-table demo-esci demo-text \
	compare-loggers figure serve bench clean lock-dev $(LOCKS:%=lock-%)

help:  ## this list
	@awk -F ':.*## *' '/^[a-z-]+:.*##/ {printf "  make %-16s %s\n", $$1, $$2}' Makefile

setup: .venv/installed  ## install the locked requirements into .venv (redone when the lock changes)

.venv/installed: locks/dev.txt
	@for python in python3.11 python3 python; do \
		"$$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && break; python=; done; \
	if [ -z "$$python" ]; then \
		echo "error: no Python 3.11 on PATH, which TensorFlow 2.15 needs: install python3.11 and run make again" >&2; exit 2; fi; \
	echo "installing $$(grep -c == locks/dev.txt) locked packages into .venv, which takes some minutes" && \
	"$$python" -m venv .venv
	$(PY) -m pip install --disable-pip-version-check --no-deps --require-hashes -r locks/dev.txt
	@touch $@

lock: setup $(LOCKS:%=lock-%)  ## recompile locks/ from pyproject.toml: the development lock, then the others at its versions

lock-dev: setup
	$(UV_COMPILE) --extra dev --output-file locks/dev.txt

$(LOCKS:%=lock-%): lock-%: lock-dev
	$(UV_COMPILE) --extra $* $(if $(filter beam trainer-gpu,$*),,$(CPU)) --constraint locks/dev.txt --output-file locks/$*.txt

protos: setup  ## generate the modules beside protos/*.proto
	$(PROTOC) --python_out=. --pyi_out=. protos/*.proto

architecture: setup  ## draw the rooms and their imports into docs/architecture.md
	$(PY) -m docs.draw_architecture

settings: setup  ## write the settings into docs/settings.md and docs/log-fields.md
	$(PY) -m docs.list_settings

check: setup  ## lint, format, types, import arrows, generated protos
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-logo
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && \
	$(PROTOC) --python_out="$$fresh" --pyi_out="$$fresh" protos/*.proto && \
	diff -r -x '*.proto' -x __init__.py -x __pycache__ "$$fresh/protos" protos && echo "generated protos are up to date" \
	|| { echo "error: protos/ differs from what protoc generates: run make protos" >&2; exit 1; }

test: setup  ## the tests, some 12 minutes on 2 cores
	$(PY) -m pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder

test-slow: setup  ## the tests that train for real
	$(PY) -m pytest -m slow

# A simulated shop's logs and their dataset. $(1): task file, $(2): directory of both, $(3): the simulator's further flags.
define dataset
	$(PY) -m simulator --config $(1) --output $(2)/logs $(3)
	$(PY) -m beam_jobs.build_elwc --config $(1) --input '$(2)/logs/events-*.jsonl.gz' --products $(2)/logs/products.jsonl.gz --output $(2)/dataset
endef

# The same, to a run trained from scratch. $(1) and $(2): as above, and the vocabulary's directory, $(3): directory of
# the run, $(4): the simulator's further flags.
define train
	$(call dataset,$(1),$(2),$(4))
	$(PY) -m beam_jobs.build_vocabulary --config $(1) --dataset $(2)/dataset --output $(2)/vocabulary
	$(PY) -m trainer fit --config $(1) --dataset $(2)/dataset --vocabulary $(2)/vocabulary --relevance $(2)/logs/relevance.tsv.gz --workdir $(3)
endef

demo: setup  ## simulated logs to a ranked answer over HTTP, with the table: at most 10 minutes on 2 cores
	$(call train,configs/product_search.yaml,build/demo,build/demo/run)
	$(PY) -m serving.smoke_test --export-dir build/demo/run/export
	@$(PY) -m trainer summary --workdir build/demo/run

demo-table: setup  ## the demo with every baseline and single teacher: at most 40 minutes on 2 cores
	$(call train,configs/demo_table.yaml,build/demo,build/demo/table)
	$(PY) -m trainer chart --workdir build/demo/table --output build/demo/table/chart.png
	@$(PY) -m trainer summary --workdir build/demo/table

demo-esci: setup  ## the same on real queries and titles: make demo-esci DATA=pairs.tsv.gz
	@test -n "$(DATA)" || { echo "error: DATA is not set, expected judged pairs: make demo-esci DATA=pairs.tsv.gz" >&2; exit 2; }
	$(call train,configs/esci.yaml,build/esci,build/esci/run,--judged-pairs '$(DATA)')
	$(PY) -m serving.smoke_test --export-dir build/esci/run/export
	@$(PY) -m trainer summary --workdir build/esci/run

# Checks DATA and ENCODER, and links the encoder to where configs/text.yaml names it.
define text_inputs
	@test -n "$(DATA)" || { echo "error: DATA is not set, expected judged pairs: make $@ DATA=pairs.tsv.gz ENCODER=DIR" >&2; exit 2; }
	@test -f "$(ENCODER)/config.json" || { echo "error: ENCODER is '$(ENCODER)', expected the directory of a BERT-family encoder, with config.json, model.safetensors and vocab.txt" >&2; exit 2; }
	@mkdir -p build && ln -sfn '$(abspath $(ENCODER))' build/encoder
endef

demo-text: setup  ## real queries and titles, and a pretrained encoder: make demo-text DATA=pairs.tsv.gz ENCODER=DIR
	$(call text_inputs)
	$(call dataset,configs/text.yaml,build/text,--judged-pairs '$(DATA)')
	$(PY) -m trainer fit --config configs/text.yaml --dataset build/text/dataset --relevance build/text/logs/relevance.tsv.gz --workdir build/text/run
	$(PY) -m serving.smoke_test --export-dir build/text/run/export
	@$(PY) -m trainer summary --workdir build/text/run

LOGGERS := blind lexical quarter half knowing
LOGGER_COMPARISONS := $(LOGGERS:%=build/loggers/%/comparison/comparison.json)

compare-loggers: $(LOGGER_COMPARISONS)  ## demo-text's recipes with 3 seeds, by what the shop's own ranker knows

$(LOGGER_COMPARISONS): build/loggers/%/comparison/comparison.json: configs/loggers/%.yaml configs/text.yaml | setup
	$(call text_inputs)
	$(call dataset,$<,build/loggers/$*,--judged-pairs '$(DATA)')
	$(PY) -m trainer compare --config $< --dataset build/loggers/$*/dataset --relevance build/loggers/$*/logs/relevance.tsv.gz --workdir build/loggers/$*/comparison --seeds 3

figure: setup  ## draw the README's picture from the table's run
	$(PY) -m trainer chart --workdir build/demo/table --output docs/demo.png

serve: setup  ## serve the demo's model, with a page to try it at http://127.0.0.1:8000/ (PORT=8000)
	$(PY) -m serving --export-dir build/demo/run/export --port $(PORT)

bench: setup  ## speed, one JSON line a figure
	@$(PY) -m benchmarks

clean:  ## remove what the demos built; .venv stays
	rm -rf build
