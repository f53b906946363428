package replicas

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/copying"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// TestItIsSeenWhetherTheStandbyCouldRunThePods has home as the standby of a claim whose pod is in west.
func TestItIsSeenWhetherTheStandbyCouldRunThePods(t *testing.T) {
	for name, row := range map[string]struct {
		tune   func(c *Controller, client *fake.Clientset)
		status metav1.ConditionStatus
		says   string
	}{
		"it could": {func(*Controller, *fake.Clientset) {}, metav1.ConditionTrue, "for each pod that uses the claims (1)"},
		"the claim's class is gone": {func(c *Controller, _ *fake.Clientset) {
			c.Targets.Class = func(string) *storagev1.StorageClass { return nil }
		}, metav1.ConditionFalse, `storage class "lodestone" of claim data is not a virtual one, or is gone`},
		"its pod cannot be read": {func(_ *Controller, client *fake.Clientset) {
			client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("not now")
			})
		}, metav1.ConditionUnknown, "what pod db-0 needs cannot be read now: not now"},
		"its pod is gone": {func(_ *Controller, client *fake.Clientset) {
			require.NoError(t, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "shop", "db-0"))
		}, metav1.ConditionUnknown, "no pod uses the claims now"},
		"the claim is another one": {func(c *Controller, _ *fake.Clientset) {
			require.NoError(t, c.Sources.Claims.GetStore().Add(&corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "another"}}))
		}, metav1.ConditionUnknown, `claim "data" is gone`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}, Spec: corev1.PodSpec{NodeName: "west",
				Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}},
				Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}},
				Status: corev1.PodStatus{Phase: corev1.PodRunning}}
			ended := pod.DeepCopy()
			ended.Name, ended.Status.Phase = "backup", corev1.PodSucceeded
			client := fake.NewClientset(pod, ended)
			sources, err := home.NewSources(informers.NewSharedInformerFactory(client, 0))
			require.NoError(t, err)
			require.NoError(t, sources.Pods.GetStore().Add(home.NewPod(pod)))
			require.NoError(t, sources.Pods.GetStore().Add(home.NewPod(ended)))
			require.NoError(t, sources.Claims.GetStore().Add(&corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c1"},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: ptr.To("lodestone"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}))
			for node, of := range map[string]string{"n1": "", "west": "west"} {
				object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: corev1.NodeStatus{
					Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
					Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}}
				if of != "" {
					object.Labels, object.Status.Allocatable = map[string]string{keys.Cluster: of}, nil
				}
				require.NoError(t, sources.Nodes.GetStore().Add(object))
			}
			c := New(Config{Client: client, Sources: sources, Targets: copying.Targets{
				Class: func(string) *storagev1.StorageClass {
					return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver,
						VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
				},
				Space: func(name string) *corev1.Namespace {
					return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
				},
				View: func(string, string) steps.Cluster {
					return steps.Cluster{ClusterClasses: route.ClusterClasses{Known: true,
						Offered: []v1alpha1.OfferedClass{{Name: "disk", Default: true}}}}
				},
			}})
			row.tune(c, client)
			is := (&runnableNow{}).of(t.Context(), c, &record.Record{Namespace: "shop", Part: record.Part{Claim: "data", ClaimUID: "c1",
				Class: "disk", Head: backing.Ref{Cluster: keys.Home}}})
			assert.Equal(t, row.status, is.Status, is.Why)
			assert.Contains(t, is.Why, row.says)
		})
	}
}

func TestTheStatusSaysWhetherTheStandbyCouldRunThePods(t *testing.T) {
	o := seen(0)
	o.Runnable = decide.Runnable{Status: metav1.ConditionFalse, Why: "no node"}
	status, _ := statusOf(o, decide.Step{})
	assert.Equal(t, metav1.ConditionFalse, status.Standbys[0].Runnable)
	assert.Equal(t, "no node", status.Standbys[0].RunnableMessage)
	o.Replica.Status, o.Runnable = status, decide.Runnable{}
	status, _ = statusOf(o, decide.Step{})
	assert.Equal(t, "no node", status.Standbys[0].RunnableMessage, "what was not found out again stays")
}

func TestNothingFailsOverByItselfToAStandbyThatCouldNotRunThePods(t *testing.T) {
	now := time.Now()
	o := decide.Outage{
		Replica: &v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-home"}, Spec: v1alpha1.VolumeReplicaSpec{
			Claims: []string{"data"}, AutomaticFailover: &v1alpha1.AutomaticFailover{}}},
		Record: &record.Record{UID: "r1", Part: record.Part{Claim: "data", ClaimUID: "c1", Head: backing.Ref{Cluster: keys.Home}},
			Sealed: []record.Version{{Number: 1, Content: record.Content{Name: "replica-r1-v1-1"}, Cut: now.Add(-time.Hour)}}},
		Claims: []decide.AffectedClaim{{At: "west",
			Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", UID: "c1"}}}},
		At: "west", Silent: time.Hour, Since: now.Add(-time.Hour), Now: now, Witness: "east",
	}
	clusters := remote.New(remote.Config{Objects: cache.NewSharedIndexInformer(nil, &v1alpha1.RemoteCluster{}, 0, nil)})
	a := &automatic{Controller: New(Config{Clusters: clusters})}
	seen := &attempts{runnable: runnableNow{at: now, Runnable: decide.Runnable{Status: metav1.ConditionTrue}}}
	move, why := a.choose(t.Context(), seen, o)
	require.NotNil(t, move, why)
	seen.runnable.Runnable = decide.Runnable{Status: metav1.ConditionFalse, Why: "no node is ready"}
	move, why = a.choose(t.Context(), seen, o)
	assert.Nil(t, move)
	assert.Contains(t, why, "cluster home could not run its pods: no node is ready; mend that")
}
