package install

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/mcs-api/config/crd"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/doctor"
)

// profiles defines ClusterProfiles as far as this test needs it.
const profiles = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
  metadata: {name: clusterprofiles.multicluster.x-k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, of a test"}},
  spec: {group: multicluster.x-k8s.io, scope: Namespaced,
  names: {kind: ClusterProfile, plural: clusterprofiles}, versions: [{name: v1alpha1, served: true, storage: true,
  schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`

// define applies a custom resource definition, and waits until it is served.
func define(t *testing.T, cluster *testbed.Cluster, definition string) {
	t.Helper()
	name := strings.TrimSpace(must.Kubectl(t, cluster, definition, "apply", "-f", "-", "-o", "name"))
	must.Kubectl(t, cluster, "", "wait", "--for=condition=Established", name, "--timeout=30s")
}

// optionalComponents installs them, keeps them through another run, and takes them away once nothing uses them.
func optionalComponents(t *testing.T) {
	_, stderr := run(t, home, failed, "install", "--tag", tag, "--services")
	assert.Contains(t, stderr, "apply the definitions of the Multi-Cluster Services API first")
	_, stderr = run(t, home, failed, "install", "--tag", tag, "--cluster-profiles")
	assert.Contains(t, stderr, "apply their definition first")
	_, stderr = run(t, home, failed, "install", "--tag", tag, "--network", "--virtual-nodes=false")
	assert.Contains(t, stderr, "needs Lodestone's virtual nodes")
	for _, definition := range []string{string(crd.ServiceExportCRD), string(crd.ServiceImportCRD), profiles} {
		define(t, home, definition)
	}
	all := []string{"install", "--tag", tag, "--network", "--services", "--cluster-profiles"}
	out, _ := run(t, home, done, append(all, "--dry-run=client")...)
	assert.Regexp(t, `network +a pod with NET_ADMIN in the network of each node`, out)
	assert.False(t, isThere(t, home, "daemonset", "lodestone-network", "lodestone-network"))

	out, _ = run(t, home, done, all...)
	assert.Contains(t, out, "kubectl label node NODE lodestone.dev/gateway=enabled")
	assert.Contains(t, out, "docs/services.md#names")
	network := must.Get(t, home.Client().AppsV1().DaemonSets("lodestone-network"), "lodestone-network")
	assert.Positive(t, network.Status.NumberAvailable, "install waits for it")
	assert.Equal(t, doctor.OK, examined(t)["manifests"].Level)
	_, stderr = run(t, home, done, "install", "--tag", tag)
	assert.Regexp(t, `0 objects made, 0 changed, \d+ as they were, 0 removed`, stderr, "what an earlier run was told holds")

	// What uses a component keeps it there.
	away := []string{"install", "--tag", tag, "--network=false", "--services=false", "--cluster-profiles=false"}
	must.Kubectl(t, home, `{apiVersion: lodestone.dev/v1alpha1, kind: RemoteCluster, metadata: {name: west},
  spec: {podNetwork: Fabric, podCIDRs: [10.2.0.0/16],
  kubeconfigSecretRef: {namespace: lodestone-system, name: west}}}`, "create", "-f", "-")
	must.Kubectl(t, home, `{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceImport, metadata: {name: web, namespace: default,
  labels: {lodestone.dev/service-import: web}}, spec: {type: Headless, ports: []}}`, "create", "-f", "-")
	_, stderr = run(t, home, refused, away...)
	assert.Contains(t, stderr, "nothing was changed: 1 networks that are joined (lodestone-network/west): kubectl lodestone peer "+
		"--pod-network Isolated")
	assert.Contains(t, stderr, "1 Services that are shared (default/web): delete the ServiceExports")
	_, stderr = run(t, home, refused, "uninstall", "--yes")
	assert.Contains(t, stderr, "1 remote clusters (west)")
	assert.Contains(t, stderr, "1 Services that are shared (default/web)")
	must.Kubectl(t, home, "", "delete", "remotecluster", "west")
	must.Kubectl(t, home, "", "delete", "serviceimport", "web", "-n", "default")
	for name, manager := range map[string]string{"west": "lodestone.dev", "fleet": "another"} {
		must.Kubectl(t, home, `{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ClusterProfile, metadata: {namespace: cluster-inventory,
  name: `+name+`, labels: {x-k8s.io/cluster-manager: `+manager+`}}}`, "create", "-f", "-")
	}

	_, stderr = run(t, home, done, away...)
	assert.Contains(t, stderr, "removed DaemonSet lodestone-network/lodestone-network")
	assert.Contains(t, stderr, "removed ClusterRole lodestone-virtualnode-services")
	assert.Contains(t, stderr, "removing 1 ClusterProfiles")
	assert.Equal(t, "clusterprofile.multicluster.x-k8s.io/fleet", strings.TrimSpace(must.Kubectl(t, home, "", "get", "clusterprofiles", "-A",
		"-o", "name")), "that of another manager stays")
	assert.True(t, isThere(t, home, "crd", "", "networklinks.network.lodestone.dev"), "definitions hold objects of users")
	virtualnode := must.Get(t, home.Client().AppsV1().Deployments(system), "lodestone-virtualnode")
	require.NotContains(t, virtualnode.Spec.Template.Spec.Containers[0].Args, "--multi-cluster-services")
	assert.Equal(t, doctor.OK, examined(t)["manifests"].Level)
	run(t, home, done, all...) // which uninstall removes
}
