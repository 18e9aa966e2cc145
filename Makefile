# Everything that a contributor or CI calls. `make help` lists it.
#
# Needs Go, git and make, and root or sudo where a Debian package is missing.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

ROOT := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
BIN := $(ROOT)/bin
# What is built once and kept: the linter and the test servers.
CACHE := $(ROOT)/.cache
CACHE_BIN := $(CACHE)/bin
# Other people's clients of the connection server, for its tests.
CLIENTS := $(ROOT)/e2e/connect/clients

# A build that is neither of a tag nor of a clean tree says so.
VERSION ?= $(shell git -C $(ROOT) describe --tags --always --dirty 2>/dev/null || echo unknown)
# As Caddy's own releases: without the database drivers of its built-in ACME server's rarely used stores.
export GOTAGS := nobadger,nomysql,nopgx
CADDY_PATH := github.com/caddyserver/caddy/v2
LDFLAGS := -s -w -X $(CADDY_PATH).CustomVersion=$(VERSION) -X $(CADDY_PATH).CustomBinaryName=gatehouse

GO_BUILD = go build -trimpath -buildvcs=false -tags=$(GOTAGS) -ldflags "$(LDFLAGS)"

# One set of compiled packages for whatever is not under the race detector (build, vet, lint, the test servers), which
# on two cores saves minutes: without cgo, and without the paths of the machine.
export CGO_ENABLED := 0
SHARED = GOFLAGS="$(strip $(shell go env GOFLAGS) -trimpath)"

# Every module of the repository, the product first.
MODULES := $(shell cd $(ROOT) && find . \( -name '.?*' -o -name testdata -o -name node_modules \) -prune -o -name go.mod -printf '%h\n' | sort)

# Those of them with tests: `go test -race` would compile the Vault server's many packages anew to find none.
TESTED_MODULES := $(shell cd $(ROOT) && for m in $(MODULES); do [ -z "$$(find $$m -name '*_test.go' -print -quit)" ] || echo $$m; done)

LINT_VERSION := $(shell sed -n 's|^\tgithub.com/golangci/golangci-lint/v2 \(v[^ ]*\).*|\1|p' $(ROOT)/tools/go.mod)
# The name holds both versions, so that either's change, and nothing else, builds it anew.
GOLANGCI_LINT = $(CACHE_BIN)/golangci-lint-$(LINT_VERSION)-$(firstword $(shell go env GOVERSION))

# The race detector watches our code and what shares memory with it, not the inside of SQLite, which is C made into Go
# and takes three times as long under it: 117 s of processor time for internal/demo's tests with it, 46 s without.
# -trimpath: another clone of the repository uses what this one has compiled.
RACE := -race -trimpath '-gcflags=modernc.org/...=-race=false -d=checkptr=0' '-gcflags=github.com/yuin/gopher-lua/...=-race=false'

# -count=1: these tests talk to servers, and a cached answer would say nothing about them.
TEST_FLAGS ?= $(RACE) '-ldflags=-s -w' -p=3 -shuffle=on -count=1 -vet=off -timeout=40m -tags=$(GOTAGS)
TEST_PACKAGES ?= ./...
# Which of them begin first. They wait for servers much of the time; three packages at a time (-p) make two processors busy.
SLOW_PACKAGES := e2e e2e/connect
# How long each fuzz target runs in `make test`, and in `make fuzz`.
FUZZTIME_SHORT ?= 5s
FUZZTIME ?= 10m
# How long `make soak` runs.
SOAK ?= 30m
# Which tests run in their long form in `make chaos`.
CHAOS ?= ^TestFault|^TestFleet

##@ Using it

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(ROOT)/Makefile
	@echo

.PHONY: demo
demo: build ## build and start the whole gateway with embedded stores on http://localhost:8080 (DEMO_FLAGS="--listen ADDR ...")
	@exec $(BIN)/gatehouse-demo $(DEMO_FLAGS)

.PHONY: build
build: ## write bin/gatehouse and bin/gatehouse-demo, the version stamped in
	@mkdir -p $(BIN)
	cd $(ROOT) && $(GO_BUILD) -o $(BIN)/ ./cmd/gatehouse ./cmd/gatehouse-demo

.PHONY: xcaddy
xcaddy: build ## build bin/gatehouse-xcaddy with the xcaddy tool from xcaddy.json, and hold it against bin/gatehouse
	go -C $(ROOT)/tools run ./xcaddybuild -config $(ROOT)/xcaddy.json -ldflags "$(LDFLAGS)" -tags $(GOTAGS) \
		-output $(BIN)/gatehouse-xcaddy -same-as $(BIN)/gatehouse

.PHONY: bench
bench: ## whole job against plain Caddy with wrk and a real Redis (BENCH_FLAGS="...")
	@$(ROOT)/scripts/packages.sh redis-server wrk
	cd $(ROOT) && go run -tags=$(GOTAGS) ./bench $(BENCH_FLAGS)

##@ Holding it to its promises

.PHONY: test
test: packages modules test-servers clients verify lint vet fuzz-short compiled unit ## everything CI checks: linters, fuzzing for seconds, every test with the race detector; fails if one was skipped

.PHONY: unit
unit: packages test-servers clients ## only the tests (TEST_PACKAGES=./ratelimit/... TEST_FLAGS="-race -run TestX")
	@cd $(ROOT) && go build -buildvcs=false -o $(CACHE_BIN)/testreport ./internal/test/testreport
	@cd $(ROOT) && $(GO_BUILD) -o $(CACHE_BIN)/gatehouse-test ./cmd/gatehouse
	@cd $(ROOT) && CGO_ENABLED=1 GATEHOUSE_TEST_BINARY=$(CACHE_BIN)/gatehouse-test $(CACHE_BIN)/testreport \
		$(addprefix -module ,$(TESTED_MODULES)) $(addprefix -first ,$(SLOW_PACKAGES)) -- $(TEST_FLAGS) $(TEST_PACKAGES)

# Compilers beside the tests take the processors from servers that tests wait for.
.PHONY: compiled
compiled: ## compile what the tests need, where that has changed
	@for module in $(TESTED_MODULES); do \
		echo "compiling $$module for its tests"; \
		(cd $(ROOT)/$$module && CGO_ENABLED=1 go list -export -deps -test $(RACE) -tags=$(GOTAGS) ./... >/dev/null) || exit 1; \
	done

.PHONY: verify
verify: ## go.mod and go.sum of every module: tidy, and (but for the test servers') the downloaded modules unchanged
	@for module in $(MODULES); do \
		echo "verifying $$module/go.mod"; \
		(cd $(ROOT)/$$module && go mod tidy -diff) || exit 1; \
	done
	@for module in $(TESTED_MODULES); do (cd $(ROOT)/$$module && go mod verify >/dev/null) || exit 1; done

.PHONY: lint
lint: $(GOLANGCI_LINT) ## golangci-lint with gofumpt over every module
	@for module in $(MODULES); do \
		echo "linting $$module"; \
		(cd $(ROOT)/$$module && $(SHARED) $(GOLANGCI_LINT) run --config $(ROOT)/.golangci.yml --timeout 1h --build-tags $(GOTAGS) ./...) || exit 1; \
	done

.PHONY: vet
vet: ## go vet over every module
	@for module in $(MODULES); do \
		echo "vetting $$module"; \
		(cd $(ROOT)/$$module && go vet -trimpath -tags=$(GOTAGS) ./...) || exit 1; \
	done

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## gofumpt and import order, in place
	@for module in $(MODULES); do \
		(cd $(ROOT)/$$module && $(GOLANGCI_LINT) fmt --config $(ROOT)/.golangci.yml ./...) || exit 1; \
	done

.PHONY: fuzz
fuzz: ## fuzz every target, each for FUZZTIME=10m (FUZZ_PACKAGES=./upstream for some)
	@cd $(ROOT) && scripts/fuzz.sh $(FUZZTIME) $(FUZZ_PACKAGES)

.PHONY: fuzz-short
fuzz-short: ## fuzz every target for a few seconds
	@cd $(ROOT) && $(SHARED) FUZZCACHE= LANES=2 UNGUIDED=yes scripts/fuzz.sh $(FUZZTIME_SHORT)

# Scenarios of the rate limiter that `make chaos` simulates.
SIM_SEEDS ?= 100000

# One after the other, so that the figures are those of one fault on an otherwise idle machine.
.PHONY: chaos
chaos: packages test-servers ## break everything around the gateway under load, at length (an hour), and print the figures (CHAOS=TestFaultVault)
	@mkdir -p $(CACHE)
	@cd $(ROOT) && GATEHOUSE_CHAOS=1 GATEHOUSE_SIM_SEEDS=$(SIM_SEEDS) go test -count=1 -vet=off -timeout=3h -tags=$(GOTAGS) \
		-run '^TestSimulation$$|^TestScenariosOnRealRedis$$' ./ratelimit
	@cd $(ROOT) && { GATEHOUSE_CHAOS=1 CGO_ENABLED=1 go test -v $(RACE) -count=1 -vet=off -parallel=1 -timeout=3h -tags=$(GOTAGS) \
		-run '$(CHAOS)' ./e2e 2>&1; echo $$? >$(CACHE)/chaos.status; } | tee $(CACHE)/chaos.log | \
		grep --line-buffered -E 'figure: |^ *--- |^(ok|FAIL|panic)'; \
		status=$$(cat $(CACHE)/chaos.status); [ $$status = 0 ] || echo "failed: see $(CACHE)/chaos.log"; exit $$status

.PHONY: mutants
mutants: packages ## plant known defects into the rate limiter, one at a time, and see that its simulation finds each (some minutes)
	@$(ROOT)/scripts/mutants.sh

.PHONY: soak
soak: packages ## hold a gateway under a steady mixed load and see that its memory stays flat (SOAK=30m)
	@cd $(ROOT) && SOAK=$(SOAK) go test -count=1 -vet=off -timeout=0 -tags=$(GOTAGS) -v -run '^TestSoak' ./e2e

.PHONY: vuln
vuln: ## known vulnerabilities that our code reaches (asks an online database, so it is not part of `make test`)
	@mkdir -p $(CACHE_BIN)
	@go -C $(ROOT)/tools build -o $(CACHE_BIN)/govulncheck golang.org/x/vuln/cmd/govulncheck
	cd $(ROOT) && $(CACHE_BIN)/govulncheck -tags=$(GOTAGS) ./...

##@ Housekeeping

.PHONY: packages
packages: ## install the Debian packages that the tests need, where missing
	@$(ROOT)/scripts/packages.sh gcc redis-server redis-sentinel redis-cli openssl curl node npm chromium

# What comes after this asks no registry for modules. `go mod tidy` wants more of them than `go mod download` brings; that it
# finds something to do is for `make verify` to say, and is no failed download.
.PHONY: modules
modules: ## download the Go modules that every module of the repository needs, where missing
	@for module in $(MODULES); do \
		(cd $(ROOT)/$$module && $(ROOT)/scripts/retry.sh go mod download && \
			$(ROOT)/scripts/retry.sh sh -c 'diff=$$(go mod tidy -diff) || [ -n "$$diff" ]') || exit 1; \
	done

.PHONY: test-servers
test-servers: ## build the Vault server for the tests into .cache/bin, once
	@echo "the Vault server for the tests (built once, which takes a few minutes):"
	@cd $(ROOT) && $(SHARED) go run ./internal/test/vaulttest/ensure

.PHONY: clients
clients: packages $(CLIENTS)/node_modules/.package-lock.json ## install the other people's clients that the connection server is tested with, where their lock file has changed

$(CLIENTS)/node_modules/.package-lock.json: $(CLIENTS)/package.json $(CLIENTS)/package-lock.json $(CLIENTS)/.npmrc
	@echo "installing the clients that the connection server is tested with"
	@cd $(CLIENTS) && $(ROOT)/scripts/retry.sh npm ci --loglevel=error
	@touch $@

.PHONY: clean
clean: ## remove everything built, the kept linter and test servers too
	rm -rf $(BIN) $(CACHE) $(CLIENTS)/node_modules

$(GOLANGCI_LINT):
	@echo "building golangci-lint $(LINT_VERSION), once; this takes a few minutes"
	@mkdir -p $(CACHE_BIN)
	@go -C $(ROOT)/tools build -ldflags "-s -w -X main.version=$(LINT_VERSION)" -o $@.new \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@mv $@.new $@
