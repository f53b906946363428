// Package pitfalls tries what can go wrong between kube-scheduler and an extender,
// on real kube-schedulers: extenders that are down, hang or talk nonsense, more
// nodes than kube-scheduler looks at, pods that the extender has no interest in, an
// extender that cannot see the cluster, and a second scheduler of two replicas. docs/scheduling-contract.md lists all pitfalls
// with the tests that hold them off, here and elsewhere.
//
// The tests stand in for the provisioner: they write what that program would.
package pitfalls

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

const (
	deploy = "../../deploy/"
	system = "lodestone-system"
	class  = "lodestone"

	west     = "west"
	westNode = "virtual-west"

	long  = 60 * time.Second
	often = 20 * time.Millisecond
)

// homeNodes are the nodes of the home cluster itself.
var homeNodes = []string{"home-1", "home-2"}

// bed is a cluster of two home nodes and one that stands for cluster west, which is
// ready. It has no scheduler: each test starts those that it is about.
var bed *testbed.Cluster

func TestMain(m *testing.M) {
	// How long a connection may be silent before its other end is asked for a sign of life, and for how long that may take: 30 and 15
	// unless told otherwise.
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if err := os.Setenv(name, "1"); err != nil {
			panic(err)
		}
	}
	testbed.Main(m, start)
}

func start(ctx context.Context) error {
	config := testbed.Config{
		Name: "home",
		// Some tests have hundreds of nodes, whose leases are seldom renewed.
		NodeGracePeriod: time.Hour,
	}
	served, err := servesGangs()
	if err != nil {
		return err
	}
	if served {
		config.APIServerArgs = []string{"--feature-gates=" + gangs, "--runtime-config=scheduling.k8s.io/v1alpha2=true"}
	}
	clusters, err := testbed.Start(ctx, config)
	if err != nil {
		return err
	}
	bed = clusters[0]
	if err := bed.StopScheduler(ctx); err != nil {
		return err
	}
	base, err := bed.Kustomization("base")
	if err != nil {
		return err
	}
	if _, err := bed.Kubectl(ctx, "", "apply", "-k", base); err != nil {
		return err
	}
	if _, err := bed.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/remoteclusters.lodestone.dev", "--timeout=60s"); err != nil {
		return err
	}
	// Without a taint, so that nothing but the data and the extender decides.
	nodes := []fakekubelet.Node{{Name: westNode, Labels: map[string]string{keys.Cluster: west}}}
	for _, name := range homeNodes {
		nodes = append(nodes, fakekubelet.Node{Name: name})
	}
	if _, err := fakekubelet.Start(ctx, fakekubelet.Options{Config: bed.AdminConfig(), Nodes: nodes, LeasePeriod: time.Minute}); err != nil {
		return err
	}
	return join(ctx)
}

// join makes cluster west known, as one that can take claims.
func join(ctx context.Context) error {
	client, err := clients.NewRemoteClusters(bed.AdminConfig())
	if err != nil {
		return err
	}
	cluster, err := client.Create(ctx, &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: west},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: system, Name: west}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make cluster west known: %w", err)
	}
	cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Test",
		LastTransitionTime: metav1.Now()}}
	cluster.Status.StorageClasses = []v1alpha1.OfferedClass{{Name: "standard", Default: true}}
	if _, err := client.UpdateStatus(ctx, cluster, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("make cluster west ready: %w", err)
	}
	return nil
}

// fromDeploy returns the path of a file in deploy/.
func fromDeploy(elements ...string) string {
	return filepath.Join(append([]string{deploy}, elements...)...)
}

// shop is a namespace of one test.
type shop struct {
	t    *testing.T
	name string
}

// newShop makes a namespace with labels, each "key=value".
func newShop(t *testing.T, labels ...string) *shop {
	t.Helper()
	s := &shop{t: t, name: testbed.Namespace(t, bed)}
	if len(labels) > 0 {
		must.Kubectl(t, bed, "", append([]string{"label", "namespace", s.name}, labels...)...)
	}
	return s
}

// open is the label of namespaces whose pods may run in remote clusters.
const open = keys.Offload + "=" + keys.OffloadEnabled

func (s *shop) claim(name string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	s.t.Helper()
	claim := newClaim(name)
	claim.Annotations = annotations
	return must.Create(s.t, bed.Client().CoreV1().PersistentVolumeClaims(s.name), claim)
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: claimSpec()}
}

func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		StorageClassName: ptr.To(class),
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
	}
}

// awayFromHome makes a claim that only the extender keeps away from home: home
// refused it lately.
func (s *shop) awayFromHome(name string) {
	s.t.Helper()
	refused, err := locality.EncodeRefusals([]locality.Refusal{{Cluster: keys.Home, Reason: "Test", Until: time.Now().Add(time.Hour)}})
	require.NoError(s.t, err)
	s.claim(name, map[string]string{keys.Refused: refused})
}

// dataIn makes a claim with a volume whose data is in a cluster.
func (s *shop) dataIn(name, cluster string) {
	s.t.Helper()
	s.bind(s.claim(name, nil), cluster)
}

// bind gives a claim a volume whose data is in a cluster.
func (s *shop) bind(claim *corev1.PersistentVolumeClaim, cluster string) {
	s.t.Helper()
	volume := "pvc-" + string(claim.UID)
	must.Create(s.t, bed.Client().CoreV1().PersistentVolumes(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      claim.Spec.Resources.Requests,
			StorageClassName:              class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: s.name, Name: claim.Name,
				UID: claim.UID},
			NodeAffinity:           locality.Affinity(cluster, nil),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: keys.Driver, VolumeHandle: volume}},
		},
	})
	s.t.Cleanup(func() {
		_ = bed.Client().CoreV1().PersistentVolumes().Delete(context.Background(), volume, metav1.DeleteOptions{})
	})
	require.Eventually(s.t, func() bool {
		bound, err := bed.Client().CoreV1().PersistentVolumeClaims(s.name).Get(s.t.Context(), claim.Name, metav1.GetOptions{})
		return err == nil && bound.Status.Phase == corev1.ClaimBound
	}, long, often, "claim %s must bind", claim.Name)
}

// pod makes a pod that mounts claims.
func (s *shop) pod(name string, claims ...string) *corev1.Pod {
	s.t.Helper()
	return s.make(newPod(name, claims...))
}

func (s *shop) make(pod *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	return must.Create(s.t, bed.Client().CoreV1().Pods(s.name), pod)
}

func newPod(name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

// restricted returns a pod that every namespace admits.
func restricted(name string, claims ...string) *corev1.Pod {
	pod := newPod(name, claims...)
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	return pod
}

// awaitNode waits until the pod is bound and returns its node.
func (s *shop) awaitNode(pod string) string {
	s.t.Helper()
	node := ""
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		found, err := bed.Client().CoreV1().Pods(s.name).Get(s.t.Context(), pod, metav1.GetOptions{})
		require.NoError(c, err)
		node = found.Spec.NodeName
		assert.NotEmpty(c, node, "pod %s must get a node: %+v", pod, found.Status.Conditions)
	}, long, often)
	return node
}

func (s *shop) atHome(pod string) bool { return slices.Contains(homeNodes, s.awaitNode(pod)) }

// awaitSelected waits until kube-scheduler selects a node for the claim.
func (s *shop) awaitSelected(claim string) string {
	s.t.Helper()
	node := ""
	require.Eventually(s.t, func() bool {
		found, err := bed.Client().CoreV1().PersistentVolumeClaims(s.name).Get(s.t.Context(), claim, metav1.GetOptions{})
		if err != nil {
			return false
		}
		node = found.Annotations[keys.SelectedNode]
		return node != ""
	}, long, often, "claim %s must get a node", claim)
	return node
}
