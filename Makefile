# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Pinned tools, built into bin/tools by the targets that need them. Building and testing need only Go.
GOLANGCI_LINT_VERSION := v2.15.0
GOFUMPT_VERSION       := v0.12.0
BENCHSTAT_VERSION     := v0.0.0-20260908200009-22c9c6c9d4da

TOOLS         := $(CURDIR)/bin/tools
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)
GOFUMPT       := $(TOOLS)/gofumpt-$(GOFUMPT_VERSION)
BENCHSTAT     := $(TOOLS)/benchstat-$(BENCHSTAT_VERSION)

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X main.version=$(VERSION)
PKG      ?= ./...
RUN      ?=
FUZZTIME ?= 30s
BASE     ?= main
COUNT    ?= 10
WORKLOAD ?= ingest-small
ROUNDS   ?= 2
SEEDS    ?= 10000
SEED     ?=
FROM     ?= 1
KILLS    ?= 200
YANKS    ?= 40
OUT      ?=
DURATION ?= 20s
WARMUP   ?= 20s
CLIENTFLAGS ?=
SCALEFLAGS ?=
SOAKFLAGS ?=
OTELMQ   := client/otelmq
SERVICESFLAGS ?=
PEERFLAGS ?= -idle 10m -clients 10000
QUICK    ?=
PEERS    ?=
COMPAT   := $(CURDIR)/bin/compat-store.txt

.PHONY: help build run fmt fmt-check vet lint tidy-check check test race invariants crash \
	crash-repeat crash-real compat-store fuzz \
	interop e2e bench bench-compare perf perf-peer perf-scale soak perf-client perf-services flame clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/skylark, a static binary
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/skylark ./cmd/skylark

run: build ## name server and broker in the foreground, data in ./skylark-data
	exec bin/skylark server --data ./skylark-data

fmt: $(GOFUMPT) $(GOLANGCI_LINT) ## format the code and its imports
	$(GOFUMPT) -w $$(git ls-files --cached --others --exclude-standard '*.go')
	$(GOLANGCI_LINT) fmt

fmt-check: $(GOFUMPT)
	@bad=$$($(GOFUMPT) -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [[ -n $$bad ]]; then echo "not formatted, run make fmt:"; echo "$$bad"; exit 1; fi

vet:
	go vet ./...
	go vet -C $(OTELMQ) ./...

lint: $(GOLANGCI_LINT) ## golangci-lint with .golangci.yml
	$(GOLANGCI_LINT) run ./...
	cd $(OTELMQ) && $(GOLANGCI_LINT) run ./...

tidy-check:
	go mod tidy -diff
	go -C $(OTELMQ) mod tidy -diff

check: fmt-check vet lint tidy-check ## format, vet, lint, tidy and short tests, under a minute
	@go run ./.ci/gotest -- -short ./...

test: ## all tests; the Apache clients too when java and mvn are there
	@go run ./.ci/gotest -interop -- $(if $(RUN),-run '$(RUN)') $(PKG)

race: ## unit tests with the race detector (needs cgo and a C compiler)
	CGO_ENABLED=1 go run ./.ci/gotest -- -race $(if $(RUN),-run '$(RUN)') $(PKG)

invariants: ## unit tests with costly checks compiled in
	@go run ./.ci/gotest -- -tags invariants $(if $(RUN),-run '$(RUN)') $(PKG)

crash: ## SEEDS=n histories with crashes (from FROM on) against a model, SEED=x one of them again
	@mkdir -p bin
	@go test -c -tags invariants -o bin/crash.test ./storage
	bin/crash.test -test.run '^TestCrashHistories$$' -test.timeout 0 \
		$(if $(SEED),-seed $(SEED) -test.v,-seeds $(SEEDS) -from-seed $(FROM))

crash-repeat: ## every test of a crash, 20 times
	@go run ./.ci/gotest -- -tags invariants -run '^TestCrash' -timeout 60m -count=20 ./...

crash-real: build ## kill the broker KILLS times under load, pull YANKS devices out, compare what was acknowledged
	go run ./perf/crashreal -skylark bin/skylark -kills $(KILLS) -yanks $(YANKS) $(if $(OUT),-out $(OUT))

compat-store: ## stores from and to RocketMQ 4.9.4 to 5.5.0, ten turns, every message counted (needs java and mvn)
	@mkdir -p bin && date -u '+%F %H:%M UTC, make compat-store, $(VERSION)' >$(COMPAT)
	go test -count=1 -run 'Golden|^TestCheck$$|OfRocketMQ|ThatAreKept|^TestVectors$$|^TestOlderRelease' \
		./storage ./storage/foreign ./engine ./engine/timer ./engine/delay ./engine/transaction | tee -a $(COMPAT)
	@go test -c -tags interop -o bin/compat.test ./engine/interop
	cd engine/interop && ../../bin/compat.test -test.run '^TestCompat' -test.timeout 0 -test.parallel 4 \
		-compat -compat-out $(COMPAT)
	@echo "summary in $(COMPAT)"

fuzz: ## each fuzzer for FUZZTIME
	@grep -roE --include='*_test.go' '^func Fuzz[[:alnum:]_]+' . | sed -E 's|/[^/]*:func | |' | sort | \
	while read -r package fuzzer; do \
		echo "$$package $$fuzzer"; \
		go test -run '^$$' -fuzz "^$$fuzzer\$$" -fuzztime $(FUZZTIME) "$$package" </dev/null; \
	done

interop: ## only the tests with Apache RocketMQ 5.5.0 and its clients (needs java and mvn)
	@go run ./.ci/gotest -require-interop -interop-only -- $(if $(RUN),-run '$(RUN)')

e2e: ## whole-system tests with real sockets and our own client
	@go run ./.ci/gotest -- -run '^TestE2E' -count=1 ./...

bench: ## micro benchmarks
	go test -run '^$$' -bench '$(or $(RUN),.)' -benchmem -count $(COUNT) $(PKG)

bench-compare: $(BENCHSTAT) ## BASE=ref and the working tree in turn, COUNT times, through benchstat; RUN= and PKG= choose
	@base=$$(mktemp -d); trap 'git worktree remove --force "$$base" >/dev/null' EXIT; \
	git worktree add --detach "$$base" $(BASE) >/dev/null; \
	mkdir -p bin; out=$$PWD/bin; : >bin/bench-base.txt; : >bin/bench-head.txt; \
	packages() { \
		if [[ '$(origin PKG)' != file ]]; then echo $(PKG); else \
		grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n1 dirname | sort -u; fi; }; \
	for ((i = 1; i <= $(COUNT); i++)); do \
		for side in base head; do \
			if [[ $$side == base ]]; then cd "$$base"; else cd $(CURDIR); fi; \
			echo "round $$i of $(COUNT): $$side" >&2; \
			go test -run '^$$' -bench '$(or $(RUN),.)' -benchmem $$(packages) >>$$out/bench-$$side.txt; \
		done; \
	done; \
	cd $(CURDIR); $(BENCHSTAT) bin/bench-base.txt bin/bench-head.txt

perf: build ## one named load, WORKLOAD=name, with its results folder
	go run ./perf/peer -skylark bin/skylark -only skylark -workload '$(WORKLOAD)' \
		-rounds $(ROUNDS) -duration $(DURATION) -warmup $(WARMUP)

perf-peer: build ## beside Apache RocketMQ 5.5.0; ROUNDS=5 to commit, QUICK=1 in 3 minutes, PEERS=nats,kafka beside
	go run ./perf/peer -skylark bin/skylark $(if $(QUICK),-quick,\
		-rounds $(ROUNDS) -duration $(DURATION) -warmup $(WARMUP) $(PEERFLAGS)) $(if $(PEERS),-peers $(PEERS))

perf-scale: build ## how cost grows with connections, queues, groups and so on; SCALEFLAGS='-only queues'
	go run ./perf/scale -skylark bin/skylark $(if $(QUICK),-quick) $(SCALEFLAGS)

soak: build ## DURATION=30m at 70 % of the highest rate: memory flat, p99.9 without drift, nothing lost
	go run ./perf/soak -skylark bin/skylark $(if $(filter command line environment,$(origin DURATION)),-duration $(DURATION)) $(SOAKFLAGS)

perf-client: build ## our client beside rocketmq-client-go/v2, alternating, with its results folder
	go run ./perf/clientpeer -skylark bin/skylark $(CLIENTFLAGS)

perf-services: build ## plain loads beside timers, half messages and retries; what waiting ones cost
	go run ./perf/services -skylark bin/skylark $(SERVICESFLAGS)

flame: build ## one load, WORKLOAD=name, with a flame graph in flamegraphs/
	go run ./perf/peer -skylark bin/skylark -only skylark -workload '$(WORKLOAD)' -profile flamegraphs \
		-results bin/results -rounds 1 -duration $(DURATION) -warmup $(WARMUP)

clean: ## remove bin/, never a store
	rm -rf bin

$(GOLANGCI_LINT):
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv $(TOOLS)/golangci-lint $@

$(GOFUMPT):
	GOBIN=$(TOOLS) go install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)
	mv $(TOOLS)/gofumpt $@

$(BENCHSTAT):
	GOBIN=$(TOOLS) go install golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION)
	mv $(TOOLS)/benchstat $@
