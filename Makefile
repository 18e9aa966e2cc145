# Everything that a contributor or CI calls, in the root of the repository. `make help` lists it.
#
# Needs Go, git and make, and root or sudo where a Debian package is missing.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# Quoted, because it may have spaces.
ROOT := "$(CURDIR)"
BIN := bin
# Programs that are built once: the linter and the test servers.
CACHE := .cache
CACHE_BIN := $(CACHE)/bin
# Third-party clients that test the connection server.
CLIENTS := e2e/connect/clients

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Like Caddy's releases: without the database drivers for rarely used stores of its ACME server.
export GOTAGS := nobadger,nomysql,nopgx
CADDY_PATH := github.com/caddyserver/caddy/v2
LDFLAGS := -s -w -X $(CADDY_PATH).CustomVersion=$(VERSION) -X $(CADDY_PATH).CustomBinaryName=gatehouse

GO_BUILD = go build -trimpath -buildvcs=false -tags=$(GOTAGS) -ldflags "$(LDFLAGS)"

# Tests read what programs print, which is in other languages elsewhere, or has warnings about a locale that is not installed.
export LC_ALL := C.UTF-8

# Build, vet, lint and the test servers share compiled packages by using the same flags, which saves minutes.
export CGO_ENABLED := 0
SHARED = GOFLAGS="$(strip $(shell go env GOFLAGS) -trimpath)"

# Every module of the repository, the product first.
MODULES := $(shell find . \( -name '.?*' -o -name testdata -o -name node_modules \) -prune -o -name go.mod -print | sed 's|/go.mod$$||' | sort)

LINT_VERSION := $(shell sed -n 's|^\tgithub.com/golangci/golangci-lint/v2 \(v[^ ]*\).*|\1|p' tools/go.mod)
# Rebuilt when either version in its name changes.
GOLANGCI_LINT = $(CACHE_BIN)/golangci-lint-$(LINT_VERSION)-$(firstword $(shell go env GOVERSION))

# SQLite and gopher-lua are not instrumented for the race detector: SQLite's C code translated to Go would run three times as
# long. A package that uses generic types of others, as modernc.org/sqlite does with sync.Map, must be instrumented: the linker may take its copy
# of their code for all, and the detector then reports races that are none. With -trimpath, all clones of the repository share compiled
# packages.
RACE := -race -trimpath '-gcflags=modernc.org/...=-race=false -d=checkptr=0' '-gcflags=modernc.org/sqlite=-d=checkptr=0' '-gcflags=github.com/yuin/gopher-lua/...=-race=false'

# -count=1: results of tests that use servers must not be cached.
TEST_FLAGS ?= $(RACE) '-ldflags=-s -w' -p=3 -shuffle=on -count=1 -vet=off -timeout=40m -tags=$(GOTAGS)
TEST_PACKAGES ?= ./...
# Packages to start first: go test starts packages in the order of its arguments, and tests a repeated one once. Their tests often wait for
# servers, so three packages at a time (-p) keep two processors busy.
SLOW_PACKAGES := $(addprefix ./,packaging e2e e2e/connect authsigner/vault ratelimit deploy connect/mcp caddymodule)
# How long each fuzz target runs in `make test`, and in `make fuzz`.
FUZZTIME_SHORT ?= 6s
FUZZTIME ?= 10m
# Seeds of the rate limiter's simulation, and of generated definitions, in `make unit`, which finds data races. `make unraced` runs 1,000
# and 200, these among them.
RACE_SIM_SEEDS ?= 60
RACE_DEFINITION_SEEDS ?= 20
# How long `make soak` runs.
SOAK ?= 30m
# The tests that `make chaos` runs in their long form.
CHAOS ?= ^TestFault|^TestFleet

##@ Using Gatehouse

.PHONY: help
help: ## list the commands
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo

.PHONY: demo
demo: build ## build and start the whole gateway with embedded stores on http://localhost:8080 (DEMO_FLAGS="--listen ADDR ...")
	@exec $(BIN)/gatehouse-demo $(DEMO_FLAGS)

.PHONY: build
build: ## build bin/gatehouse and bin/gatehouse-demo, with the version
	@mkdir -p $(BIN)
	$(GO_BUILD) -o $(BIN)/ ./cmd/gatehouse ./cmd/gatehouse-demo

.PHONY: xcaddy
xcaddy: build ## build bin/gatehouse-xcaddy with the xcaddy tool from xcaddy.json, and check that bin/gatehouse has the same modules
	@scripts/packages.sh jq
	LDFLAGS="$(LDFLAGS)" scripts/xcaddy.sh $(BIN)/gatehouse-xcaddy $(BIN)/gatehouse

.PHONY: bench
bench: ## compare Gatehouse to plain Caddy with wrk and a real Redis (BENCH_FLAGS="...")
	@scripts/packages.sh redis-server wrk
	go run -tags=$(GOTAGS) ./bench $(BENCH_FLAGS)

.PHONY: sizing
sizing: test-servers ## measure what requests, keys, connections and callers cost here, with a real Redis and Vault, in about two minutes
	@scripts/packages.sh redis-server
	@echo "measuring"
	@GATEHOUSE_SIZING=$(ROOT)/$(CACHE)/sizing.md $(SHARED) go test -count=1 -vet=off -timeout=30m -tags=$(GOTAGS) -run '^TestSizing$$' ./e2e
	@cat $(CACHE)/sizing.md

##@ Releasing

# GoReleaser finds the tools that it calls in PATH, and takes the time and the name of a commit only where there is a remote.
export GIT_CONFIG_COUNT := 1
export GIT_CONFIG_KEY_0 := remote.origin.url
export GIT_CONFIG_VALUE_0 := https://github.com/gatehouse-gateway/gatehouse
TOOL ?= $(CURDIR)/scripts/tool.sh
GORELEASER = "$(TOOL)" cyclonedx-gomod version >/dev/null && PATH="$$(dirname "$(TOOL)")/../.cache/bin:$$PATH" "$(TOOL)" goreleaser
SNAPSHOT_FLAGS ?=

.PHONY: snapshot
snapshot: ## build into dist/ what a release has, for all platforms: archives, deb, rpm, SBOMs and checksums, but no image
	$(GORELEASER) release --snapshot --clean --skip=docker,sign $(SNAPSHOT_FLAGS)

.PHONY: release
release: ## build and upload a draft of the release of the tag that is checked out; only the workflow "release" can sign it
	@mkdir -p $(BIN)
	scripts/release-notes.sh >$(BIN)/notes.md
	$(GORELEASER) release --clean --release-notes=$(BIN)/notes.md

##@ Testing

.PHONY: test
test: packages modules test-servers clients verify lint fuzz-short unraced compiled unit ## everything CI checks: linters, short fuzzing, all tests with the race detector; a skipped test is a failure

.PHONY: unit
unit: packages test-servers clients ## only the tests (TEST_PACKAGES=./ratelimit/... TEST_FLAGS="-race -run TestX")
	@! find $(filter-out .,$(MODULES)) -name '*_test.go' | grep . || { echo "tests of other modules are not run" >&2; exit 1; }
	@mkdir -p $(CACHE_BIN)/tested
	@go -C tools build -o ../$(CACHE_BIN)/gotestsum gotest.tools/gotestsum
	@$(GO_BUILD) -o $(CACHE_BIN)/tested/ ./cmd/gatehouse ./cmd/gatehouse-demo
	@CGO_ENABLED=1 GATEHOUSE_TEST_BINARIES=$(ROOT)/$(CACHE_BIN)/tested GATEHOUSE_SIM_SEEDS=$(RACE_SIM_SEEDS) \
		GATEHOUSE_DEFINITION_SEEDS=$(RACE_DEFINITION_SEEDS) scripts/test.sh $(CACHE_BIN)/gotestsum $(TEST_FLAGS) $(if $(filter ./...,$(TEST_PACKAGES)),$(SLOW_PACKAGES)) $(TEST_PACKAGES)

# The race detector makes the simulation about four times as slow, and generated definitions ten times, so `make unit` runs only some
# of their seeds. Hostile definitions are not in its tests at all.
GENERATED := ^TestMutated(Answers|Bodies)|^Test(Answers|Bodies)AreValid
.PHONY: unraced
unraced: ## run without the race detector what it makes too slow: all seeds of the simulation and of generated definitions, and hostile ones
	@$(SHARED) go test -count=1 -vet=off -timeout=40m -tags=$(GOTAGS) \
		-run '^TestSimulation$$|^TestHostileDefinitions|$(GENERATED)' ./ratelimit ./upstream/definition

# Compiling first leaves the processors to the tests and the servers that they wait for.
.PHONY: compiled
compiled: ## compile the tests and their dependencies
	@echo "compiling the tests"
	@CGO_ENABLED=1 go list -export -deps -test $(RACE) -tags=$(GOTAGS) ./... >/dev/null
	@for tool in "goreleaser --version" "cyclonedx-gomod version" "helm version"; do "$(TOOL)" $$tool >/dev/null || exit 1; done

.PHONY: verify
verify: ## check that go.mod and go.sum are tidy and that the downloaded modules are unchanged
	@for module in $(MODULES); do \
		echo "verifying $$module/go.mod"; \
		(cd $$module && go mod tidy -diff) || exit 1; \
	done
	@for module in . tools; do (cd $$module && go mod verify >/dev/null) || exit 1; done

.PHONY: lint
lint: $(GOLANGCI_LINT) ## golangci-lint with gofumpt and all checks of go vet over every module, and actionlint
	@for module in $(MODULES); do \
		echo "linting $$module"; \
		(cd $$module && $(SHARED) $(ROOT)/$(GOLANGCI_LINT) run --config $(ROOT)/.golangci.yml --timeout 1h --build-tags $(GOTAGS) ./...) || exit 1; \
	done
	@echo "linting .github/workflows"
	@"$(TOOL)" actionlint

.PHONY: vet
vet: ## go vet over every module
	@for module in $(MODULES); do \
		echo "vetting $$module"; \
		(cd $$module && go vet -trimpath -tags=$(GOTAGS) ./...) || exit 1; \
	done

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## gofumpt and import order, in place
	@for module in $(MODULES); do \
		(cd $$module && $(ROOT)/$(GOLANGCI_LINT) fmt --config $(ROOT)/.golangci.yml ./...) || exit 1; \
	done

.PHONY: fuzz
fuzz: ## fuzz every target, each for FUZZTIME=10m (FUZZ_PACKAGES=./upstream for some)
	@scripts/fuzz.sh $(FUZZTIME) $(FUZZ_PACKAGES)

.PHONY: fuzz-short
fuzz-short: ## fuzz every target for a few seconds
	@$(SHARED) FUZZCACHE= JOBS=2 UNGUIDED=yes scripts/fuzz.sh $(FUZZTIME_SHORT)

# Seeds of the rate limiter's simulation and of generated definitions in `make chaos`, those of `make unraced` among them.
SIM_SEEDS ?= 100000
DEFINITION_SEEDS ?= 20000

# One test at a time, so that faults do not affect the figures of other faults.
.PHONY: chaos
chaos: packages test-servers ## break Redis, Vault, data services and the gateway under load, for about an hour, and print the figures (CHAOS=TestFaultVault)
	@mkdir -p $(CACHE)
	@GATEHOUSE_CHAOS=1 GATEHOUSE_SIM_SEEDS=$(SIM_SEEDS) go test -count=1 -vet=off -timeout=3h -tags=$(GOTAGS) \
		-run '^TestSimulation$$' ./ratelimit
	@GATEHOUSE_DEFINITION_SEEDS=$(DEFINITION_SEEDS) go test -count=1 -vet=off -timeout=3h -tags=$(GOTAGS) \
		-run '$(GENERATED)' ./upstream/definition
	@{ GATEHOUSE_CHAOS=1 CGO_ENABLED=1 go test -v $(RACE) -count=1 -vet=off -parallel=1 -timeout=3h -tags=$(GOTAGS) \
		-run '$(CHAOS)' ./e2e 2>&1; echo $$? >$(CACHE)/chaos.status; } | tee $(CACHE)/chaos.log | \
		grep --line-buffered -E 'figure: |^ *--- |^(ok|FAIL|panic)'; \
		status=$$(cat $(CACHE)/chaos.status); [ $$status = 0 ] || echo "failed: see $(CACHE)/chaos.log"; exit $$status

.PHONY: mutants
mutants: packages ## check that the simulation of the rate limiter finds known defects, which takes some minutes
	@scripts/mutants.sh

.PHONY: soak
soak: packages ## check that memory stays flat under a steady mixed load (SOAK=30m)
	@SOAK=$(SOAK) go test -count=1 -vet=off -timeout=0 -tags=$(GOTAGS) -v -run '^TestSoak' ./e2e

.PHONY: vuln
vuln: ## list known vulnerabilities that our code reaches; queries an online database
	@mkdir -p $(CACHE_BIN)
	@go -C tools build -o ../$(CACHE_BIN)/govulncheck golang.org/x/vuln/cmd/govulncheck
	$(CACHE_BIN)/govulncheck -tags=$(GOTAGS) ./...

##@ Housekeeping

.PHONY: packages
packages: ## install missing Debian packages that the tests need
	@scripts/packages.sh gcc redis-server redis-sentinel redis-cli openssl curl node npm python3 php chromium prometheus jq mmdebstrap zsh

# Later commands download no modules. `go mod tidy -diff` needs more modules than `go mod download` gets. That it finds
# differences is not an error here; `make verify` reports it.
.PHONY: modules
modules: ## download missing Go modules
	@for module in $(MODULES); do \
		(cd $$module && $(ROOT)/scripts/retry.sh go mod download && \
			$(ROOT)/scripts/retry.sh sh -c 'diff=$$(go mod tidy -diff) || [ -n "$$diff" ]') || exit 1; \
	done

.PHONY: test-servers
test-servers: ## build the Vault server for the tests into .cache/bin, once
	@echo "building the Vault server for the tests, once; this takes a few minutes"
	@$(SHARED) go run ./internal/test/vaulttest/ensure

.PHONY: clients
clients: packages $(CLIENTS)/node_modules/.package-lock.json ## install the third-party clients that test the connection server

$(CLIENTS)/node_modules/.package-lock.json: $(CLIENTS)/package.json $(CLIENTS)/package-lock.json $(CLIENTS)/.npmrc
	@echo "installing the third-party clients that test the connection server"
	@cd $(CLIENTS) && $(ROOT)/scripts/retry.sh npm ci --loglevel=error
	@touch $@

.PHONY: manifests
manifests: ## render deploy/kubernetes/gatehouse.yaml from the chart
	cd deploy && { sed '/^$$/q' kubernetes/gatehouse.yaml && \
		../scripts/tool.sh helm template gatehouse chart --namespace gatehouse --values kubernetes/values.yaml; } >kubernetes/gatehouse.yaml.new
	mv deploy/kubernetes/gatehouse.yaml.new deploy/kubernetes/gatehouse.yaml

.PHONY: clean
clean: ## remove everything that was built, including the linter and the test servers
	rm -rf $(BIN) $(CACHE) $(CLIENTS)/node_modules

$(GOLANGCI_LINT):
	@echo "building golangci-lint $(LINT_VERSION), once; this takes a few minutes"
	@mkdir -p $(CACHE_BIN)
	@go -C tools build -ldflags "-s -w -X main.version=$(LINT_VERSION)" -o ../$@.new \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@mv $@.new $@
