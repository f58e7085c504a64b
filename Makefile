# `make` alone explains what there is to make.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# Brings tools, cluster-up, cluster-down, cluster-reload, CLUSTER_DIR and MANAGER_ARGS.
include test/cluster/cluster.mk

# The cluster that install and run speak to: KUBECONFIG, else the one of `make cluster-up`.
TARGET_KUBECONFIG := $(or $(KUBECONFIG),$(wildcard $(CLUSTER_DIR)/kubeconfig))
# The directory of Calico's real CRDs, if any; go test changes directories, so it is made absolute.
ifneq ($(CALICO_CRDS),)
override CALICO_CRDS := $(abspath $(CALICO_CRDS))
export CALICO_CRDS
endif
# The same of ToolHive's.
ifneq ($(TOOLHIVE_CRDS),)
override TOOLHIVE_CRDS := $(abspath $(TOOLHIVE_CRDS))
export TOOLHIVE_CRDS
endif

GO ?= go
FUZZTIME ?= 10s
BENCH_ARGS ?=
FAULTS_ARGS ?=
E2E_ARGS ?=
# go does not look at the servers when it reuses a result.
FRESH = $(if $(KUBE),-count=1)
# The race detector needs a C compiler; a machine without one tests without it.
RACE = $(if $(shell command -v $$($(GO) env CC)),-race)
# make lint vets the tests, too.
TEST = $(GO) test -vet=off

# What has a go.mod of its own, so that none of it reaches the product's dependencies.
MODULES := test/cluster test/chart test/chart/alerts test/bench/chartplot hack/release
# The packages of the product.
UNIT = $$($(GO) list ./... | grep -v /phasegate/test/)
# Those of them in which something runs side by side: test-all tests them with the race detector, too. So do the tests of
# kubectl-phasegate, whose dashboard is a package of its own.
SIDE_BY_SIDE = ^[[:space:]]*go (func|[a-zA-Z.]+\()|\.Go\(|"sync(/atomic)?"
RACED = $$($(GO) list ./cmd/manager ./controllers/builtin \
	$$(grep -rlE --include='*.go' --exclude='*_test.go' '$(SIDE_BY_SIDE)' cmd controllers fsm resources | xargs -n1 dirname | sort -u | grep -vx cmd/kubectl-phasegate | sed 's|^|./|'))
# Packages whose tests start clusters. Those that take longest come first, and the others run beside them.
CLUSTERED = ./test/e2e ./test/mcpserver ./test/install $$($(GO) list ./test/... | grep -vE '/test/(bench|bench/waiting|e2e|install|mcpserver)$$')
# Left to test-all: what takes more than 20 s on two cores, but for the whole life that is TestLifecycle.
LONG_PACKAGES = /test/(faults/(mcpserver|migration|owners|processes)|demo/tutorials)$$
LONG_TESTS = Abort AtTheTerminal BadInput ByOtherNames CleanUpAndRestore ConflictSeenAhead ConflictUnderTheLock \
	CooperativeLock CopiedAheadWithoutAPIServer DefectsThatPeopleShowAreFound ErrorsInTheMiddle \
	EveryAPIServer EveryCorruptionIsFound ExtendedMigration GoneBeforeTheLock \
	KilledAfterConverged KilledWhileWaiting LastCopiesOutliveTheirMigration LockBroken LockDeadline \
	MissingRights NewMachine NobodyIsToldOfTheAPIServer OneRequestAtATime RestoresOfOneApplication \
	RightsGoUnderTheLock Scaffold SideDoorRefused StoreFull TheAPIServiceComesBack Upgrade Waivers \
	WebhookDelaysWrites WritesLandAfterTheProof
empty :=
LONG = ^Test($(subst $(empty) ,|,$(strip $(LONG_TESTS))))$$

##@ Help

.PHONY: help
help: ## Show this text
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ See it work

.PHONY: demo
demo: build cluster-tools ## Migrate a whole cluster from nothing, with a conflict on the way (KEEP=1 keeps it)
	$(GO) run ./test/demo

.PHONY: practice
practice: build cluster-tools ## A Calico cluster from nothing with a manager, to try a migration on, or machines of one's own in PHASES_DIR, with MANAGER_ARGS (Ctrl-C ends it)
	$(GO) run ./test/demo --practice $(if $(PHASES_DIR),--phases-dir $(abspath $(PHASES_DIR))) $(MANAGER_ARGS:%=--manager-arg=%)

.PHONY: picture
picture: build cluster-tools ## Record docs/images/demo.svg: the commands of a tutorial on a real control plane (needs script, of util-linux)
	PICTURE=$(abspath docs/images/demo.svg) $(GO) test -count=1 -timeout 15m -v -run Migrate ./test/demo/tutorials

.PHONY: install
install: bin/tools/kubectl ## Apply our CRDs to the cluster of KUBECONFIG (default: that of cluster-up), but not over those of others (CRDS=always: over those, too)
	KUBECONFIG=$(TARGET_KUBECONFIG) CRDS=$(CRDS) hack/install-crds.sh

.PHONY: run
run: build ## Run the manager against that cluster, in the foreground (MANAGER_ARGS adds flags)
	bin/manager $(addprefix --kubeconfig=,$(TARGET_KUBECONFIG)) --leader-elect=false $(MANAGER_ARGS)

##@ Build

.PHONY: build
build: ## Build bin/manager, bin/kubectl-phasegate, bin/proxyrunner, and the servers that tests use
	@test -x bin/manager || echo 'building the programs: two to ten minutes where nothing is in the cache of Go, a minute else' >&2
	@# By one call, so that another is compiled while one is linked, which takes one core.
	$(GO) build -o bin/ ./cmd/manager ./cmd/kubectl-phasegate ./cmd/proxyrunner ./test/support/fakeapiserver/cmd/fakeapiserver ./test/support/mcp/echoserver
	install -m 755 cmd/kubectl-phasegate/kubectl_complete-phasegate bin/

.PHONY: generate
generate: bin/tools/controller-gen ## Write deepcopy, CRDs and RBAC from the sources
	hack/generate.sh

.PHONY: release images
release: bin/tools/helm ## Leave in dist/ what is published (VERSION=v0.1.0; DIRTY=1 with uncommitted changes)
	hack/release.sh
images: ## Leave only the images in dist/images, as OCI layouts
	hack/release.sh images

.PHONY: reproducible
reproducible: bin/tools/helm ## Build programs and chart twice, once from nothing, and compare the bytes
	cd hack/release && $(GO) test -count=1 -run Reproducible -v -timeout 30m . -full

.PHONY: clean
clean: ## Remove what was built (not the cache of tools, not a running cluster)
	rm -rf bin dist coverage*

##@ Check

# API servers that collect garbage less often leave more of the CPU to the tests.
test test-all test-times e2e: export CLUSTER_GOGC ?= 400

.PHONY: test test-all test-unit test-modules
test: ## Run the tests but for the longest, unit tests first, then those on real control planes
	@echo 'make test takes 10 to 40 minutes on two cores with warm caches, as fast as they are. make test-all adds the longest tests on control planes, the race detector, and the modules beside the product.'
	@$(MAKE) --no-print-directory build tools
	@# Three at a time: some wait for a cluster.
	$(TEST) -timeout 15m -p 3 $(UNIT)
	$(TEST) $(FRESH) -timeout 30m -p 2 -skip '$(LONG)' $$(printf '%s\n' $(CLUSTERED) | grep -vE '$(LONG_PACKAGES)')

test-all: build tools test-modules ## Run all tests
	$(TEST) -timeout 15m -p 3 $(UNIT)
	$(if $(RACE),$(TEST) $(RACE) -timeout 15m -p 3 $(RACED))
	$(if $(RACE),$(TEST) $(RACE) -run TestOneMachineServesManyRuns ./fsm)
	$(TEST) $(FRESH) -timeout 60m -p 2 $(CLUSTERED)
	@# It measures times.
	$(TEST) $(FRESH) -timeout 10m ./test/bench/waiting

test-modules: tools ## Run the tests of what has a go.mod of its own: chart, release, clusters
	@# They read files of other modules, which go does not look at when it reuses a result.
	printf '%s\n' $(MODULES) | xargs -P 2 -I{} sh -c 'cd {} && $(TEST) -count=1 -timeout 10m ./...'

.PHONY: test-times
test-times: build tools ## Run what TIMES names (all tests on control planes), and print where the time went: compiling, clusters, waits, each test
	$(GO) run ./hack/testtimes -- -vet=off -count=1 -timeout 90m -p 2 $(or $(TIMES),$(CLUSTERED))

test-unit: ## Run the tests that need no control plane: in a minute or two
	$(TEST) -short $(UNIT)

.PHONY: e2e
e2e: build cluster-tools ## Run only the end-to-end tests, with their output (KUBE=v1.30.14: on that Kubernetes; E2E_ARGS='-run Lifecycle')
	$(GO) test $(FRESH) -timeout 30m -v ./test/e2e/... $(E2E_ARGS)

.PHONY: real-calico
real-calico: build cluster-tools ## Migrate with Calico's own programs, from the directory CALICO_BIN; reports in bin/real-calico (REAL_ALLOCATIONS=500: the long form; REAL_ARGS='-run TestRealKills')
	@test -d '$(CALICO_BIN)' || { echo 'not run: CALICO_BIN names no directory with programs of a Calico release: docs/operate/real-programs.md' >&2; exit 1; }
	mkdir -p bin/real-calico
	CALICO_BIN=$(abspath $(CALICO_BIN)) REAL_REPORT=$(abspath bin/real-calico) REAL_ALLOCATIONS=$(REAL_ALLOCATIONS) \
		$(GO) test -count=1 -timeout 90m -v -run TestReal ./test/e2e $(REAL_ARGS)

.PHONY: real-toolhive
real-toolhive: build cluster-tools ## Serve MCP sessions through ToolHive's own proxyrunner, the program THV_PROXYRUNNER; with THV_OPERATOR and TOOLHIVE_CRDS also compare with its operator (REAL_ARGS='-run TestAddedLatency')
	@test -x '$(THV_PROXYRUNNER)' || { echo 'not run: THV_PROXYRUNNER names no program: build cmd/thv-proxyrunner of github.com/stacklok/toolhive' >&2; exit 1; }
	THV_PROXYRUNNER=$(abspath $(THV_PROXYRUNNER)) THV_OPERATOR=$(abspath $(THV_OPERATOR)) $(GO) test -count=1 -timeout 30m -v ./test/peers/toolhive $(REAL_ARGS)

.PHONY: conformance
conformance: build ## Run the official MCP conformance tests, and the inspector, through our proxy; npm has installed them in MCP_CONFORMANCE
	@test -x '$(MCP_CONFORMANCE)/node_modules/.bin/conformance' || { echo 'not run: MCP_CONFORMANCE names no directory in which npm has installed @modelcontextprotocol/conformance: docs/operate/real-programs.md' >&2; exit 1; }
	MCP_CONFORMANCE=$(abspath $(MCP_CONFORMANCE)) $(GO) test -count=1 -timeout 60m -v -run 'TestConformance|TestInspector' ./cmd/proxyrunner

.PHONY: dashboard-test
dashboard-test: build cluster-tools ## Open the dashboard in a real browser during a migration; screenshots in bin/dashboard (needs chromium; AXE=axe.min.js)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { echo 'no Chromium on the PATH; on Debian: apt-get install chromium' >&2; exit 1; }
	mkdir -p bin/dashboard
	$(GO) test -count=1 -timeout 15m -artifacts -outputdir $(abspath bin/dashboard) -v ./test/install/dashboard

.PHONY: lint
lint: bin/tools/golangci-lint ## Check style, budgets and import directions
	bin/tools/golangci-lint run ./...
	for module in $(MODULES); do (cd $$module && $(abspath bin/tools/golangci-lint) run --config $(abspath .golangci.yml) ./...); done

.PHONY: verify
verify: bin/tools/controller-gen bin/tools/golangci-lint ## Check that generated files, go.mod files and documents agree with the sources
	hack/verify.sh

# A short run is not for keeping: it writes where nothing is committed, and leaves out what needs minutes.
BENCH_OUT ?= $(if $(BENCH_OBJECTS),bin/bench,test/bench)
BENCH_TIME ?= $(if $(BENCH_OBJECTS),20ms,1s)
BENCH = BENCH_OUT=$(abspath $(BENCH_OUT)) $(GO) test -run '^$$' -benchtime 1x -timeout 12h -v ./test/bench $(BENCH_ARGS)

.PHONY: waiting
waiting: build cluster-tools ## Let WAITING_OBJECTS (5000) objects of a machine that is only a file wait for a minute on one manager, and wake 500 of them
	WAITING_OBJECTS=$(or $(WAITING_OBJECTS),5000) WAITING_QUIET=$(or $(WAITING_QUIET),60) $(GO) test -count=1 -timeout 60m -v ./test/bench/waiting

.PHONY: bench bench-migration bench-neighbour bench-servers bench-proxy compare-proxy bench-micro
bench: bench-migration bench-servers bench-micro ## Measure all of the following (hours; BENCH_OBJECTS=500 BENCH_SERVERS=20: a minute)
bench-migration: build cluster-tools ## Compare migrations with what Calico's controller does and with raw creates (BENCH_SIZES, BENCH_REPEATS, BENCH_CONTENDERS); what was measured on this machine stays, unless BENCH_ANEW=1
	ok=0; $(BENCH) -bench Migration || ok=$$?; \
	$(if $(BENCH_OBJECTS),,(cd test/bench/chartplot && $(GO) run . <$(abspath $(BENCH_OUT))/locked.json >$(abspath $(BENCH_OUT))/locked.svg) &&) exit $$ok
bench-neighbour: ## Measure what other clients notice of a copy, and what it takes with and without them (BENCH_SIZES, BENCH_REPEATS)
	$(MAKE) bench-migration BENCH_CONTENDERS=raw,alone,beside
bench-servers: build cluster-tools ## Run BENCH_SERVERS (500) MCP servers on one manager
	$(BENCH) -bench MCPServers
bench-proxy: build ## Compare 1,000 sessions at the server alone and through the proxy, with clients that do harm (6 minutes)
	$(GO) test -count=1 -run '^$$' -benchtime 1x -bench Sessions -timeout 30m ./cmd/proxyrunner
compare-proxy: build ## Compare the proxy with another build of it, BEFORE: latency, calls, CPU, memory, its end (12 minutes)
	@test -x '$(BEFORE)' || { echo 'not run: BEFORE names no program' >&2; exit 1; }
	PROXYRUNNER_BEFORE=$(abspath $(BEFORE)) $(GO) test -count=1 -v -timeout 60m -run TestCompareBuilds ./cmd/proxyrunner
bench-micro: ## Measure a pass of the engine, guards, conversion, equality and digest
	$(GO) test -run '^$$' -bench 'Pass|Guard|LoadAndBind|Convert|Equal|Digest' -benchtime $(BENCH_TIME) -benchmem ./fsm ./controllers/runner ./test/bench

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (10s)
	hack/fuzz.sh $(FUZZTIME)

.PHONY: humans
humans: ## Play 1,000 schedules of people who interfere with each machine: about half an hour (a part is in make test)
	$(GO) test -count=1 -timeout 4h -v ./test/simulation -run 'TestTenRandomHumans' -runs 1000 $(HUMANS_ARGS)

.PHONY: faults faults-in-process faults-of-processes
# They are bound by the CPU, two cores for five hundred migrations; as for test.
faults: export CLUSTER_GOGC ?= 400
faults: build tools ## Put every fault at every write of both controllers, kill what can be killed, take away each right of the chart: hours (FAULTS.md; a part is in make test-all)
	@# Side by side: the one computes, the other mostly waits.
	$(MAKE) -j2 faults-in-process faults-of-processes
	RIGHTS=all $(GO) test -count=1 -timeout 30m -v -run TestStory ./test/install
	FAULTS=all $(GO) test -count=1 -timeout 2h -v -run TestAPIServersOfEachKind ./test/e2e
faults-in-process:
	@# Storms wait more than they compute.
	FAULTS=all $(GO) test -count=1 -timeout 4h -parallel 3 -v ./test/faults/migration $(FAULTS_ARGS)
faults-of-processes:
	FAULTS=all $(GO) test -count=1 -timeout 4h -p 1 -v $$($(GO) list ./test/faults/... | grep -v faults/migration) $(FAULTS_ARGS)

# The two pinned developer tools; hack/tools.sh does nothing when they are up to date.
.PHONY: bin/tools/controller-gen bin/tools/golangci-lint
bin/tools/controller-gen bin/tools/golangci-lint:
	@hack/tools.sh $(notdir $@)

bin/tools/kubectl:
	$(MAKE) cluster-tools
bin/tools/helm:
	$(MAKE) tools
