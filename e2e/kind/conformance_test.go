package kind

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// conformancePrefix is that of the namespaces that the conformance tests make.
const conformancePrefix = "mcs-conformance-"

// conforming has the API servers do for these tests, which make each namespace in both clusters and know of no virtual node, what
// Lodestone needs: the namespace at home is offloaded, that of the same name in west is its own, and pods that are made at home stay there.
const conforming = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: e2e-conformance-namespaces}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}]
  matchConditions: [{name: of-the-tests, expression: object.metadata.name.startsWith('%[1]s')}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{metadata: Object.metadata{%[2]s}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: e2e-conformance-namespaces}
spec: {policyName: e2e-conformance-namespaces}
`

// staying is what is said of pods.
const staying = `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: e2e-conformance-pods}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions:
  - {name: of-the-tests, expression: "request.namespace.startsWith('%[1]s')"}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: "add", path: "/spec/nodeSelector", value: {"kubernetes.io/hostname": "home-control-plane"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: e2e-conformance-pods}
spec: {policyName: e2e-conformance-pods}
`

// TestServicesConform runs the conformance tests of the Multi-Cluster Services API, as they are, over the network fabric: with the
// Services that most of them export in home, and in west.
func TestServicesConform(t *testing.T) {
	if os.Getenv("LODESTONE_MCS") == "" {
		t.Skip("needs the conformance tests: run make e2e-mcs")
	}
	needsClusters(t)
	onlyFabric(t)
	id := home.kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")[:8]
	for c, metadata := range map[*cluster]string{
		home: "labels: {'" + keys.Offload + "': '" + keys.OffloadEnabled + "'}",
		west: "labels: {'" + keys.HomeID + "': '" + id + "'}, annotations: {'" + keys.MadeFor + "': '" + id + "/' + object.metadata.name}",
	} {
		policies := fmt.Sprintf(conforming, conformancePrefix, metadata)
		if c == home {
			policies += fmt.Sprintf(staying, conformancePrefix)
		}
		c.apply(t, policies)
		t.Cleanup(func() {
			_, err := c.try(context.Background(), policies, "delete", "-f", "-")
			assert.NoError(t, err)
		})
	}
	// The agent would make a namespace before the tests do.
	maximum := func(ctx context.Context, many string) error {
		_, err := west.try(ctx, "", "patch", "homecluster", id, "--type=merge", "-p", `{"spec": {"namespaces": {"maximum": `+many+`}}}`)
		return err
	}
	before := west.kubectl(t, "get", "homecluster", id, "-o", "jsonpath={.spec.namespaces.maximum}")
	t.Cleanup(func() { assert.NoError(t, maximum(context.Background(), cmp.Or(before, "null"))) })
	require.NoError(t, maximum(t.Context(), "0"))

	for _, test := range []struct{ name, contexts string }{
		{"home exports", "kind-home,kind-west"},
		{"west exports", "kind-west,kind-home"},
	} {
		t.Run(test.name, func(t *testing.T) {
			populate(t)
			conforms(t, test.contexts)
		})
	}
}

// populate has a claim of home in west in each namespace of the conformance tests, until the test ends: Services are shared where pods or
// claims of home are. With a pod home's Services would be in west, too, where these tests make others of the same names.
func populate(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ; ctx.Err() == nil; time.Sleep(poll) {
			namespaces, err := home.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			if err != nil {
				continue // it is asked again
			}
			for _, namespace := range namespaces.Items {
				if !strings.HasPrefix(namespace.Name, conformancePrefix) || namespace.DeletionTimestamp != nil {
					continue
				}
				_, err := home.client.CoreV1().PersistentVolumeClaims(namespace.Name).Create(ctx, &corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Name: "there", Annotations: map[string]string{keys.SelectedNode: west.name}},
					Spec: corev1.PersistentVolumeClaimSpec{
						StorageClassName: ptr.To(diskClass), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
						Resources: corev1.VolumeResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
					},
				}, metav1.CreateOptions{})
				if err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
					t.Logf("no claim of home in namespace %s yet: %v", namespace.Name, err)
				}
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-stopped
	})
}

// conforms runs the conformance tests, which take the first of the contexts for the cluster that exports, and checks that each passes.
func conforms(t *testing.T, contexts string) {
	t.Helper()
	directory, err := filepath.Abs(filepath.Join("..", "..", "bin", "results", "conformance", unsuitable.ReplaceAllString(contexts, "-")))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(directory, 0o755))
	output, err := os.Create(filepath.Join(directory, "output.txt"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, output.Close()) }()
	tests := exec.CommandContext(t.Context(), filepath.Join(cache(), "conformance"), "-kubeconfig", kubeconfig(), "-contexts", contexts,
		"-test.timeout", "50m", "-ginkgo.v", "-ginkgo.no-color", "-project", "lodestone")
	tests.Dir, tests.Stdout, tests.Stderr = directory, output, output
	failed := tests.Run()
	for _, c := range []*cluster{home, west} {
		eventually(t, "no namespace of the tests is left in "+c.name, func(collect *assert.CollectT) {
			namespaces, err := c.client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			require.NoError(collect, err)
			for _, namespace := range namespaces.Items {
				assert.False(collect, strings.HasPrefix(namespace.Name, conformancePrefix), namespace.Name)
			}
		})
	}

	var report struct {
		Passed, Total int
		Groups        []struct {
			Name  string
			Tests []struct {
				Desc, Message string
				Passed        bool
			}
		}
	}
	said, err := os.ReadFile(filepath.Join(directory, "report.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(said, &report))
	for _, group := range report.Groups {
		for _, test := range group.Tests {
			assert.True(t, test.Passed, "%s: %s%s", group.Name, test.Desc, test.Message)
		}
	}
	t.Logf("%d of %d conformance tests passed; what they said is in %s", report.Passed, report.Total, directory)
	require.NoError(t, failed, "see %s", output.Name())
	assert.Positive(t, report.Total, "tests that ran")
}
