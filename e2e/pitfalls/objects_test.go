package pitfalls

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

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
		_, err := bed.Kubectl(t.Context(), "", append([]string{"label", "namespace", s.name}, labels...)...)
		require.NoError(t, err)
	}
	return s
}

// open is the label of namespaces whose pods may run in remote clusters.
const open = keys.Offload + "=" + keys.OffloadEnabled

func (s *shop) claim(name string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	s.t.Helper()
	claim := newClaim(name)
	claim.Annotations = annotations
	made, err := bed.Client().CoreV1().PersistentVolumeClaims(s.name).Create(s.t.Context(), claim, metav1.CreateOptions{})
	require.NoError(s.t, err)
	return made
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
	refused, err := refusal.Encode([]refusal.Refusal{{Cluster: keys.Home, Reason: "Test", Until: time.Now().Add(time.Hour)}})
	require.NoError(s.t, err)
	s.claim(name, map[string]string{keys.Refused: refused})
}

// dataIn makes a claim with a volume whose data is in a cluster.
func (s *shop) dataIn(name, cluster string) {
	s.t.Helper()
	ctx := s.t.Context()
	claim := s.claim(name, nil)
	volume := "pvc-" + string(claim.UID)
	_, err := bed.Client().CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      claim.Spec.Resources.Requests,
			StorageClassName:              class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: s.name, Name: name, UID: claim.UID},
			NodeAffinity:                  locality.Affinity(cluster, nil),
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: keys.Driver, VolumeHandle: volume}},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		_ = bed.Client().CoreV1().PersistentVolumes().Delete(context.Background(), volume, metav1.DeleteOptions{})
	})
	require.Eventually(s.t, func() bool {
		bound, err := bed.Client().CoreV1().PersistentVolumeClaims(s.name).Get(ctx, name, metav1.GetOptions{})
		return err == nil && bound.Status.Phase == corev1.ClaimBound
	}, long, often, "claim %s must bind", name)
}

// pod makes a pod that mounts claims.
func (s *shop) pod(name string, claims ...string) *corev1.Pod {
	s.t.Helper()
	return s.make(newPod(name, claims...))
}

func (s *shop) make(pod *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	made, err := bed.Client().CoreV1().Pods(s.name).Create(s.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(s.t, err)
	return made
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
