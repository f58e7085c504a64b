# The control plane that tests and developers use; see test/cluster/README.md.
# Included by the Makefile at the root of the repository, where make must run.

CLUSTER_DIR ?= .cluster
# More flags for cluster up, for example CLUSTER_FLAGS='--no-fsync --nodes 5'.
CLUSTER_FLAGS ?=
# The version of the servers, for example KUBE=v1.30.14; empty: the pinned one.
KUBE ?=
# More flags for the manager that cluster-reload starts.
MANAGER_ARGS ?=

CLUSTER_TOOLS := bin/tools
CLUSTER := $(CLUSTER_TOOLS)/cluster

# Ready binaries, if there are any, are used instead of building; what is not
# among them (often all but etcd, kube-apiserver and kubectl) is left out.
ifneq ($(KUBEBUILDER_ASSETS),)
CLUSTER_ASSETS := --assets $(KUBEBUILDER_ASSETS)
CLUSTER_MISSING := --skip-missing
endif

CLUSTER_VERSION := $(if $(KUBE),--kubernetes $(KUBE))

# An existing cluster is used only if it is named on make's command line: tests
# change the cluster they run on, and a KUBECONFIG that happens to be in the
# environment may be that of a cluster somebody needs.
ifeq ($(origin KUBECONFIG),command line)
CLUSTER_EXISTING := --kubeconfig $(KUBECONFIG)
endif

GO ?= go

##@ Control plane

.PHONY: tools cluster-tools cluster-launcher cluster-up cluster-down cluster-reload

# The rename lets the launcher be replaced while another make runs it.
cluster-launcher:
	@mkdir -p $(CLUSTER_TOOLS)
	@cd test/cluster && GOWORK=off $(GO) build -buildvcs=false -o $(CURDIR)/$(CLUSTER).$$$$ ./cmd/cluster && mv -f $(CURDIR)/$(CLUSTER).$$$$ $(CURDIR)/$(CLUSTER)

tools: cluster-launcher ## Build the servers of the test cluster, kubectl and helm into bin/tools
	@$(CLUSTER) tools --source test/cluster --out $(CLUSTER_TOOLS) $(CLUSTER_ASSETS) $(CLUSTER_VERSION)

# What a cluster needs, which is all but helm: the demo does without, and is ready sooner.
cluster-tools: cluster-launcher
	@$(CLUSTER) tools --source test/cluster --out $(CLUSTER_TOOLS) --skip helm $(CLUSTER_ASSETS) $(CLUSTER_VERSION)

ifdef CLUSTER_EXISTING
cluster-up: cluster-launcher
	@$(CLUSTER) up --dir $(CLUSTER_DIR) $(CLUSTER_EXISTING)
else
cluster-up: cluster-tools ## Start a control plane; leaves its kubeconfig in CLUSTER_DIR (.cluster)
	@$(CLUSTER) up --dir $(CLUSTER_DIR) --tools $(CLUSTER_TOOLS) $(CLUSTER_MISSING) $(CLUSTER_FLAGS)
endif

cluster-down: cluster-launcher ## End the control plane in CLUSTER_DIR, and all that runs with it
	@$(CLUSTER) down --dir $(CLUSTER_DIR)

cluster-reload: cluster-launcher ## Rebuild the manager and restart it on the cluster in CLUSTER_DIR
	@$(GO) build -o bin/manager ./cmd/manager
	@$(CLUSTER) run --dir $(CLUSTER_DIR) --name manager -- bin/manager --kubeconfig $(abspath $(CLUSTER_DIR))/kubeconfig --leader-elect=false $(MANAGER_ARGS)
