# Lodestone. `make` alone lists what can be done.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Programs that run in clusters, each from the folder of its name without '-'.
PROGRAMS := provisioner extender virtualnode remote-agent mover network

# The version must start with vX.Y.Z: component-base panics on anything else.
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || echo v0.0.0-dev.$(COMMIT))
LDFLAGS := -s -w \
  -X k8s.io/component-base/version.gitVersion=$(VERSION) \
  -X k8s.io/component-base/version.gitCommit=$(COMMIT)

# Images are named $(REGISTRY)lodestone-<program>:$(TAG).
ENGINE ?= docker
REGISTRY ?=
TAG ?= dev

# The Kubernetes of clusters for tests, by its minor version (KUBERNETES=1.34): e2e/programs/kubernetes-*.mod says which there are.
KUBERNETES ?=
export LODESTONE_KUBERNETES := $(KUBERNETES)
# What changes new objects there: policies, where they are served, or webhook.
ADMISSION ?=
export LODESTONE_ADMISSION := $(ADMISSION)

RESULTS := bin/results
export CGO_ENABLED := 0
# The same flags everywhere: what is compiled for one target serves the others.
export GOFLAGS := $(strip $(shell go env GOFLAGS 2>/dev/null) -trimpath)
# $(GO) <what> <arguments>: go, which says how far it is with that.
GO := hack/go.sh
# Tests are vetted by verify-lint, and need no debugger.
TEST_FLAGS := -vet=off -ldflags='-s -w'

.PHONY: help
help: ## List what can be done
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build

.PHONY: build
build: ## Build the programs and the kubectl plugin into bin/, static
	@for program in $(PROGRAMS); do \
	  $(GO) "lodestone-$$program" build -ldflags '$(LDFLAGS)' -o "bin/lodestone-$$program" "./$${program//-/}"; \
	  echo "built bin/lodestone-$$program $(VERSION)"; \
	done
	@$(GO) kubectl-lodestone build -ldflags '$(LDFLAGS)' -o bin/kubectl-lodestone ./kubectl-lodestone
	@echo "built bin/kubectl-lodestone $(VERSION); put it on your PATH for kubectl lodestone"

.PHONY: images
images: ## Build the images (ENGINE=docker, REGISTRY=, TAG=dev)
	@for program in $(PROGRAMS); do \
	  $(ENGINE) build --target "$$program" --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) \
	    -t "$(REGISTRY)lodestone-$$program:$(TAG)" .; \
	done

.PHONY: chart
chart: ## Write the Helm chart into bin/chart (VERSION=)
	@go run ./deploy/chart --to bin/chart --version '$(VERSION)'
	@echo "wrote bin/chart/lodestone $(VERSION)"

.PHONY: release-snapshot
release-snapshot: bin/helm ## Build all files of a release into bin/release, from Go modules and Debian packages, and test them (VERSION=)
	@go run ./deploy/release --to bin/release --version '$(VERSION)' --commit '$(COMMIT)' --time "$$(git log -1 --format=%ct)"
	@$(GO) "the test of the release" list -export -deps -test ./deploy/release >/dev/null
	@LODESTONE_RELEASE=$(CURDIR)/bin/release LODESTONE_VERSION='$(VERSION)' HELM=$(CURDIR)/bin/helm \
	  go test $(TEST_FLAGS) -count=1 -v -run Snapshot ./deploy/release
	@echo "built bin/release $(VERSION)"

.PHONY: generate
generate: bin/controller-gen ## Generate deep copies, custom resource definitions and the reference pages
	@hack/generate.sh .

.PHONY: clean
clean: ## Remove bin/ (the programs for tests stay in the user's cache)
	rm -rf bin

##@ Try

.PHONY: demo
demo: ## Tell the whole story on two control planes on loopback (KEEP=1 leaves them running)
	@$(GO) demo build -o bin/demo ./e2e/cmd/demo
	@KEEP=$(KEEP) exec bin/demo

##@ Test

.PHONY: test
test: unit integration ## Run the unit and the integration tests (KUBERNETES=1.34 on older control planes, ADMISSION=webhook without policies)
	@echo "unit and integration tests passed"

.PHONY: unit
unit: bin/gotestsum bin/helm test-libraries ## Run the unit tests
	@mkdir -p $(RESULTS)
	@# The driver for tests is a module of its own, whose dependencies the product has not.
	@cd e2e/disk && ../../bin/gotestsum --format=pkgname-and-test-fails --hide-summary=skipped -- $(TEST_FLAGS) ./...
	@# Tests that try thousands of small worlds otherwise spend a third of their time collecting garbage.
	@GOGC=300 HELM=$(CURDIR)/bin/helm bin/gotestsum --format=pkgname-and-test-fails --hide-summary=skipped --jsonfile=$(RESULTS)/unit.json -- $(TEST_FLAGS) -timeout 20m \
	  $$(go list ./... | grep -vxFf <(printf "$$(go list -m)/%s\n" $(ON_CONTROL_PLANES)))

.PHONY: test-dashboard
test-dashboard: ## Test and measure the dashboard's page in Chromium (SHOTS=<folder> for pictures); `make unit` does it too, where there is one
	@$(GO) "the test of the dashboard" list -export -deps -test ./e2e/dashboard >/dev/null
	@LODESTONE_SCREENSHOTS='$(SHOTS)' go test $(TEST_FLAGS) -count=1 -v ./e2e/dashboard

# The packages whose tests start control planes or an object store: `make integration` runs these, `make unit` all others.
ON_CONTROL_PLANES = $(shell grep -rlE 'testbed[.](Main|Require)\b' --include='*_test.go' e2e | xargs -n 1 dirname | sort -u)

# What tests are made of: compiled first, since only this says how far it is.
.PHONY: test-libraries
test-libraries:
	@cd e2e/disk && ../../$(GO) "the CSI driver for tests" list -export -deps -test ./... >/dev/null
	@$(GO) "what the tests are made of" list -export -deps -test ./... >/dev/null

.PHONY: integration
integration: bin/gotestsum bin/helm test-libraries control-plane sidecars object-store ## Run the integration tests, on control planes on loopback
	@mkdir -p $(RESULTS)
	@rm -f $(RESULTS)/integration-times.txt
	@# Two packages at once: with more of them the control planes take all of two cores.
	@# On a busy machine a wait may end too early: up to three failures are tried once more, and reported.
	@LODESTONE_TESTBED=1 HELM=$(CURDIR)/bin/helm LODESTONE_TIMES=$(CURDIR)/$(RESULTS)/integration-times.txt bin/gotestsum --format=pkgname-and-test-fails --hide-summary=skipped --jsonfile=$(RESULTS)/integration.json \
	  --rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-report=$(RESULTS)/integration-again.txt --packages="$(ON_CONTROL_PLANES:%=./%)" -- \
	  $(TEST_FLAGS) -p 2 -count=1 -timeout 40m
	@if [[ -s $(RESULTS)/integration-again.txt ]]; then echo "failed once, and passed when run again:"; cat $(RESULTS)/integration-again.txt; fi
	@# A package that failed before its first test has no test to try again, and would pass.
	@hack/verify-ran.sh $(RESULTS)/integration.json
	@hack/test-times.sh $(RESULTS)/integration.json $(RESULTS)/integration-times.txt

.PHONY: e2e
e2e: bin/gotestsum ## Run the suite on two kind clusters, which it brings up and takes down (RUN=<pattern> runs some, KUBERNETES=1.34 on older nodes)
	@RUN='$(RUN)' exec e2e/kind/run.sh

.PHONY: e2e-long
e2e-long: ## Run the same suite with longer outages and more files (an hour more)
	@E2E_LONG=1 $(MAKE) e2e

# Those of the suite that a node of Liqo is to pass, and its own.
LIQO_TESTS := ^Test(TwinIsNeverMounted|StatefulSetKeepsItsFiles|PodWaitsForItsCordonedNode|DrainOfTheVirtualNode|KubeletAtHomeRefuses|AVolumeGoesToWest|ADevice|PodsThatAreMadeDuringAMove|AClaimMadeFromASnapshot|ANodeOfLiqo|NamespacesAreThoseOfLiqo|FilesOutliveThatLiqo)

.PHONY: e2e-liqo
e2e-liqo: bin/gotestsum bin/helm ## Run those tests with a node of Liqo 1.2.0, built from its Go module (RUN=<pattern> runs some)
	@LODESTONE_LIQO=1 RUN='$(or $(RUN),$(LIQO_TESTS))' exec e2e/kind/run.sh

.PHONY: e2e-fabric
e2e-fabric: bin/gotestsum ## Run the tests of translated addresses and of two gateways with clusters whose pods have addresses of one range, home of two nodes
	@LODESTONE_FABRIC=1 RUN='$(or $(RUN),^Test(PodsReachEachOtherByTranslatedAddresses|OneOfTwoGatewaysIsLostUnderADatabase)$$)' exec e2e/kind/run.sh

.PHONY: e2e-dual
e2e-dual: bin/gotestsum ## Run the test of IPv6 with clusters whose nodes, pods and Services have that, too
	@LODESTONE_DUAL=1 RUN='$(or $(RUN),^TestPodsReachEachOtherByIPv6$$)' exec e2e/kind/run.sh

.PHONY: e2e-three
e2e-three: bin/gotestsum ## Run the test of three clusters, home, west and east, whose pods have addresses of one range
	@LODESTONE_THREE=1 RUN='$(or $(RUN),^TestRemoteClustersReachEachOther$$)' exec e2e/kind/run.sh

.PHONY: e2e-mcs
e2e-mcs: bin/gotestsum ## Run the conformance tests of the Multi-Cluster Services API (MCS_API=<folder of a clone of kubernetes-sigs/mcs-api>)
	@[[ -d '$(MCS_API)/conformance' ]] || { echo 'clone https://github.com/kubernetes-sigs/mcs-api, and name its folder: make e2e-mcs MCS_API=../mcs-api' >&2; exit 1; }
	@LODESTONE_MCS='$(realpath $(MCS_API))' RUN='$(or $(RUN),^TestServicesConform$$)' exec e2e/kind/run.sh

.PHONY: e2e-install
e2e-install: bin/gotestsum bin/helm chart ## Install, upgrade and remove Lodestone on kind, with the Helm chart and with kubectl lodestone install
	@LODESTONE_INSTALL=1 RUN='$(or $(RUN),^TestInstalled)' exec e2e/kind/run.sh

.PHONY: e2e-up
e2e-up: ## Bring up two kind clusters with Lodestone from this tree; `make e2e` then uses them
	@e2e/kind/up.sh && e2e/kind/guide.sh

.PHONY: e2e-down
e2e-down: ## Delete them, and put the machine back as it was
	@e2e/kind/down.sh

.PHONY: test-newer-scheduler
test-newer-scheduler: control-plane ## Test with kube-scheduler of the next Kubernetes what that changes, on a control plane on loopback
	@LODESTONE_TESTBED=1 E2E_LONG=1 go test $(TEST_FLAGS) -count=1 -v -run InKubernetes137 ./e2e/pitfalls

.PHONY: test-upgrade
test-upgrade: control-plane ## Upgrade what runs on control planes on loopback from an earlier version to this one, and go back
	@$(GO) "the test of upgrades" list -export -deps -test ./e2e/upgrade >/dev/null
	@LODESTONE_TESTBED=1 LODESTONE_COMPLETE=1 E2E_LONG=1 go test $(TEST_FLAGS) -count=1 -v ./e2e/upgrade

# What this program is called, and its record: two may run beside each other.
STORY ?= demo-check
.PHONY: demo-check
demo-check: control-plane ## Run the whole story as a check, on control planes on loopback (KUBERNETES=1.34 for older ones)
	@echo "demo-check: on real control planes on loopback; pods are simulated"
	@mkdir -p $(RESULTS)
	@$(GO) demo build -o bin/$(STORY) ./e2e/cmd/demo
	@# When interrupted, the demo ends what it has started, and is heard until then.
	@trap : INT TERM; KEEP= bin/$(STORY) --check | (trap '' INT TERM; exec tee $(RESULTS)/$(STORY).txt)

# The oldest Kubernetes that control planes are built of.
OLDEST = $(shell ls e2e/programs/kubernetes-*.mod | sed 's/.*kubernetes-//; s/.mod$$//' | sort -V | head -n 1)

.PHONY: demo-check-oldest
demo-check-oldest: ## Run it on the oldest Kubernetes that Lodestone is tested with
	@$(MAKE) demo-check KUBERNETES=$(OLDEST) STORY=demo-check-oldest

.PHONY: control-plane-oldest
control-plane-oldest: # Builds that, for .ci/run.
	@$(MAKE) control-plane KUBERNETES=$(OLDEST)

.PHONY: crash
crash: control-plane ## Stop the provisioner at each API call it makes, and check what becomes of claims (ARGS=--sample for some)
	@$(GO) crash build -o bin/crash ./e2e/cmd/crash
	@exec bin/crash $(ARGS)

.PHONY: crash-move
crash-move: control-plane ## Stop the provisioner at each API call of a move, kill its movers, and check the data (ARGS=--sample for some)
	@$(GO) crash build -o bin/crash ./e2e/cmd/crash
	@exec bin/crash --moves $(ARGS)

.PHONY: crash-replicas
crash-replicas: control-plane ## Stop the provisioner at each kind of write while claims are copied, failed over and brought back, and check the data (DEATHS=<pattern> for some kinds of writes, RUN=<pattern> for some tests)
	@$(GO) "the test of replicas" list -export -deps -test ./e2e/replicas >/dev/null
	@LODESTONE_TESTBED=1 LODESTONE_COMPLETE=1 E2E_LONG=1 E2E_DEATHS='$(DEATHS)' go test $(TEST_FLAGS) -timeout 300m -count=1 -v \
	  -run '$(or $(RUN),WhereverThe(Provisioner|Command)Dies)' ./e2e/replicas

.PHONY: outages
outages: ## Have a remote cluster away for 0 to 10 simulated minutes at each step of each flow, and print what becomes of claims
	@$(GO) "the test of outages" list -export -deps -test ./provisioner/claims/decide >/dev/null
	@E2E_LONG=1 go test -count=1 -v -run TestOutagesAtEachStep ./provisioner/claims/decide

.PHONY: move-cases
move-cases: ## Take every case that a copy of a volume must survive through rsync, restic and the mover (as root; ARGS=--whole for 10 GiB)
	@$(GO) move-cases build -o bin/move-cases ./e2e/cmd/move-cases
	@$(GO) lodestone-mover build -ldflags '$(LDFLAGS)' -o bin/lodestone-mover ./mover
	@exec bin/move-cases --mover=$(CURDIR)/bin/lodestone-mover $(ARGS)

.PHONY: programs
programs: bin/gotestsum ## Build all programs of others that tests and clusters need into the user's cache
	@go run ./e2e/cmd/build controlplane disk sidecars restic rest-server kind node coredns local-path-provisioner >/dev/null

.PHONY: control-plane
control-plane: ## Build the control-plane program into the user's cache
	@go run ./e2e/cmd/build controlplane >/dev/null

.PHONY: sidecars
sidecars: ## Build the CSI sidecars and a CSI driver for tests into the user's cache
	@go run ./e2e/cmd/build disk sidecars >/dev/null

.PHONY: object-store
object-store: ## Build restic and an object store for tests into the user's cache
	@go run ./e2e/cmd/build restic rest-server >/dev/null

##@ Measure

.PHONY: bench
bench: bench-provisioning bench-virtualnode bench-agent bench-extender bench-throughput ## Run all benchmarks

.PHONY: bench-provisioning
bench-provisioning: control-plane ## Measure claims against the real class alone
	@$(GO) bench-provisioning build -o bin/bench-provisioning ./e2e/cmd/bench-provisioning
	@exec bin/bench-provisioning

.PHONY: bench-virtualnode
bench-virtualnode: ## Measure the memory and the start of the virtual node program with 50,000 pods
	@$(GO) bench-virtualnode build -o bin/bench-virtualnode ./e2e/cmd/bench-virtualnode
	@exec bin/bench-virtualnode

.PHONY: bench-agent
bench-agent: ## Measure the memory and the start of the remote agent with 50,000 pods
	@$(GO) bench-agent build -o bin/bench-agent ./e2e/cmd/bench-agent
	@exec bin/bench-agent

.PHONY: bench-extender
bench-extender: control-plane ## Measure the extender's answers to kube-scheduler's own client
	@$(GO) bench-extender build -o bin/bench-extender ./e2e/cmd/bench-extender
	@exec bin/bench-extender

.PHONY: bench-move
bench-move: ## Measure whole moves of a volume beside rsync and restic (as root; ARGS='--files=5000 --size=104857600' for less)
	@$(GO) lodestone-mover build -ldflags '$(LDFLAGS)' -o bin/lodestone-mover ./mover
	@$(GO) bench-move build -o bin/bench-move ./e2e/cmd/bench-move
	@exec bin/bench-move $(ARGS)

.PHONY: bench-replicas
bench-replicas: ## Measure second copies of a volume beside rsync over stunnel, restic, rclone, borg and syncthing (as root; ARGS='--files=5000 --size=104857600' for less)
	@$(GO) lodestone-mover build -ldflags '$(LDFLAGS)' -o bin/lodestone-mover ./mover
	@$(GO) bench-replicas build -o bin/bench-replicas ./e2e/cmd/bench-replicas
	@exec bin/bench-replicas $(ARGS)

.PHONY: bench-network
bench-network: control-plane ## Measure the network fabric in network namespaces beside a bare lane and plain routing, and 1,000 nodes (as root; ARGS='--rounds=1' for less)
	@$(GO) bench-network build -o bin/bench-network ./e2e/cmd/bench-network
	@exec bin/bench-network $(ARGS)

.PHONY: bench-gap
bench-gap: ## Measure on kind how long a writer is away for a move, beside a plain restart of its pod
	@E2E_BENCH=1 $(MAKE) e2e RUN='^TestAMoveBesideAPlainRestart$$'

.PHONY: bench-failover
bench-failover: ## Measure on kind how long a failover and a drill take until their claim is bound, beside a claim from a VolumeSnapshot
	@E2E_BENCH=1 $(MAKE) e2e RUN='^TestAFailoverBesideAClaimFromASnapshot$$'

.PHONY: bench-throughput
bench-throughput: control-plane ## Measure how many pods a second are placed on 1,000 nodes
	@$(GO) bench-throughput build -o bin/bench-throughput ./e2e/cmd/bench-throughput
	@exec bin/bench-throughput

.PHONY: bench-tree
bench-tree: ## Measure the scan of a volume beside rsync (about 9 GiB of disk; ARGS='--dir=/mnt --large=0' for others)
	@$(GO) bench-tree build -o bin/bench-tree ./e2e/cmd/bench-tree
	@exec bin/bench-tree $(ARGS)

.PHONY: soak-extender
soak-extender: ## Make a day's requests of the extender and watch its memory (about 10 minutes; ARGS=--requests=200000 for fewer)
	@$(GO) soak-extender build -o bin/soak-extender ./e2e/cmd/soak-extender
	@exec bin/soak-extender $(ARGS)

.PHONY: soak-provisioner
soak-provisioner: control-plane ## Make 2,000 claims while all programs are killed at random (about 10 minutes; ARGS='--seed=7 --claims=500' for others)
	@$(GO) soak-provisioner build -o bin/soak-provisioner ./e2e/cmd/soak-provisioner
	@exec bin/soak-provisioner $(ARGS)

##@ Verify

VERIFY := verify-format verify-lint verify-logging verify-generated verify-manifests verify-modules images-check

.PHONY: verify
verify: $(VERIFY) ## Check format, linters, generated files, manifests and modules
	@echo "verify: $(words $(VERIFY)) checks passed"

.PHONY: list-verify
list-verify: # Prints the names of the checks, for scripts.
	@echo $(VERIFY)

.PHONY: verify-format
verify-format: # Every Go file is as gofmt writes it.
	@hack/verify-format.sh

.PHONY: verify-lint
verify-lint: bin/golangci-lint test-libraries # The linters of .golangci.yml, go vet among them, find nothing.
	@bin/golangci-lint run ./...
	@cd e2e/disk && ../../bin/golangci-lint run --config ../../.golangci.yml ./...

.PHONY: verify-logging
verify-logging: bin/logcheck # The programs log structured, with the logger of the context.
	@go vet -vettool=$(CURDIR)/bin/logcheck -check-contextual ./pkg/... ./provisioner/... ./extender/... \
	  ./virtualnode/... ./remoteagent/... ./mover/... ./network/...

.PHONY: verify-generated
verify-generated: bin/controller-gen # Generated files are up to date.
	@hack/verify-generated.sh

.PHONY: verify-manifests
verify-manifests: bin/kustomize # Every kustomization builds.
	@hack/verify-manifests.sh

.PHONY: verify-modules
verify-modules: # go.mod and go.sum of every module are tidy.
	@hack/verify-modules.sh

.PHONY: images-check
images-check: # What the Dockerfile copies exists.
	@hack/verify-dockerfile.sh

# Tools, each in a module of its own so that none holds back the other's
# dependencies; rebuilt when its go.mod changes.
TOOLS := golangci-lint gotestsum kustomize controller-gen logcheck helm

$(TOOLS:%=bin/%): bin/%: .tools/%/go.mod
	@mkdir -p bin
	@echo "building $*"
	@cd .tools/$* && ../../$(GO) $* build -ldflags '-s -w' -o ../../bin/$*.new tool
	@mv bin/$*.new $@ && touch $@
