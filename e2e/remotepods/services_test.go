package remotepods

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/mcs-api/config/crd"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

// shareServices installs the components deploy/components/services and services-remote, and has the program started anew with their flag.
func shareServices(t *testing.T) {
	t.Helper()
	deploy := filepath.Join(fabric.Root(), "deploy")
	for _, cluster := range []*testbed.Cluster{bed.Home, bed.West} {
		for _, definition := range [][]byte{crd.ServiceExportCRD, crd.ServiceImportCRD} {
			must.Kubectl(t, cluster, string(definition), "apply", "-f", "-")
		}
	}
	component := filepath.Join(deploy, "components", "services")
	must.Kubectl(t, bed.Home, "", "apply", "-f", filepath.Join(component, "rights.yaml"), "-f", filepath.Join(component, "limits.yaml"))
	folder := t.TempDir()
	there, err := filepath.Rel(folder, deploy)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), fmt.Appendf(nil,
		"kind: Kustomization\nresources: [%s/remote/home]\ncomponents: [%s/components/services-remote]\n", there, there), 0o600))
	must.Kubectl(t, bed.West, "", "apply", "-k", folder)
	require.NoError(t, program.Stop())
	program, err = startProgram(func(config *virtualnode.Config) { config.MultiClusterServices = true })
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, program.Stop())
		program, err = startProgram()
		require.NoError(t, err)
	})
}

// TestServicesAreSharedByAllProgramsTogether has the real agent give the namespace, and the real program share a Service of each cluster:
// the one at home is of a pod that runs in west.
func TestServicesAreSharedByAllProgramsTogether(t *testing.T) {
	testbed.Require(t)
	shareServices(t)
	require.NoError(t, network(t, v1alpha1.Routed, "10.128.0.0/9"))
	defer func() { assert.NoError(t, network(t, v1alpha1.Isolated)) }()
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	_, there := runs(t, namespace, "web")
	api := map[string]*clients.MultiClusterServices{}
	for _, cluster := range []*testbed.Cluster{bed.Home, bed.West} {
		var err error
		api[cluster.Name()], err = clients.NewMultiClusterServices(cluster.AdminConfig())
		require.NoError(t, err)
	}
	export := func(cluster *testbed.Cluster, name string, selector map[string]string) {
		t.Helper()
		must.Create(t, cluster.Client().CoreV1().Services(namespace), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 80}}}})
		must.Create(t, api[cluster.Name()].Exports(namespace), &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	addresses := func(cluster *testbed.Cluster, name, from string) (all []string) {
		t.Helper()
		list := must.List(t, cluster.Client().DiscoveryV1().EndpointSlices(namespace), metav1.ListOptions{
			LabelSelector: mcs.LabelServiceName + "=" + name + "," + mcs.LabelSourceCluster + "=" + from})
		for _, slice := range list.Items {
			for _, endpoint := range slice.Endpoints {
				all = append(all, endpoint.Addresses...)
			}
		}
		return all
	}
	has := func(cluster *testbed.Cluster, name, from string, want ...string) {
		t.Helper()
		await.Until(t, fmt.Sprintf("%s has %s of %s at %v", cluster.Name(), name, from, want),
			func() bool { return assert.ObjectsAreEqual(want, addresses(cluster, name, from)) },
			func() any { return addresses(cluster, name, from) })
	}
	export(bed.Home, "web", map[string]string{"app": "web"})
	has(bed.Home, "web", homeID, there.Status.PodIP)
	has(bed.West, "web", homeID, there.Status.PodIP)

	export(bed.West, "db", nil)
	must.Create(t, bed.West.Client().DiscoveryV1().EndpointSlices(namespace), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "db-1", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.128.77.7"}}}})
	has(bed.Home, "db", "west", "10.128.77.7")
	await.Until(t, "it has an address at home", func() bool {
		found, err := api["home"].Imports(namespace).Get(t.Context(), "db", metav1.GetOptions{})
		return err == nil && len(found.Spec.IPs) == 1
	})
	// What stands for an import at home does not follow the pods of its namespace to west.
	list := must.List(t, bed.West.Client().CoreV1().Services(namespace), metav1.ListOptions{LabelSelector: "lodestone.dev/reflected"})
	for _, service := range list.Items {
		assert.Equal(t, "web", service.Name)
	}

	must.Delete(t, api["west"].Exports(namespace), "db")
	has(bed.Home, "db", "west")
}
