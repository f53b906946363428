package unpeer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestWhoMayStillBeConnected(t *testing.T) {
	going := metav1.NewTime(time.Unix(1, 0))
	both := []string{keys.VirtualNodeFinalizer, keys.VolumesFinalizer}
	for name, test := range map[string]struct {
		deleted    *metav1.Time
		finalizers []string
		reasons    map[string]string
		want       []string
	}{
		"nobody that never looked at it": {},
		"both as long as they say so": {
			finalizers: both,
			reasons:    map[string]string{v1alpha1.VirtualNode: "Ready", v1alpha1.CredentialsValid: "Valid"},
			want:       []string{"lodestone-virtualnode", "lodestone-provisioner"},
		},
		"nobody once both have said that there is no kubeconfig": {
			finalizers: both,
			reasons:    map[string]string{v1alpha1.VirtualNode: "BadKubeconfig", v1alpha1.CredentialsValid: "NotRead"},
		},
		"the node's program as long as only the provisioner has said it": {
			finalizers: both,
			reasons:    map[string]string{v1alpha1.VirtualNode: "Ready", v1alpha1.CredentialsValid: "NotRead", v1alpha1.Ready: "BadKubeconfig"},
			want:       []string{"lodestone-virtualnode"},
		},
		"the node's program before it has said anything": {
			finalizers: both,
			reasons:    map[string]string{v1alpha1.CredentialsValid: "NotRead"},
			want:       []string{"lodestone-virtualnode"},
		},
		"the provisioner where other nodes stand for the cluster": {
			finalizers: []string{keys.VolumesFinalizer},
			reasons:    map[string]string{v1alpha1.VirtualNode: "Disabled", v1alpha1.CredentialsValid: "ExpiresSoon"},
			want:       []string{"lodestone-provisioner"},
		},
		"the node's program while it empties the node": {
			deleted: &going, finalizers: both,
			reasons: map[string]string{v1alpha1.VirtualNode: "Leaving", v1alpha1.Ready: "Leaving", v1alpha1.CredentialsValid: "NotRead"},
			want:    []string{"lodestone-virtualnode"},
		},
		"not the provisioner that has let a deleted one go": {
			deleted: &going, finalizers: []string{keys.VirtualNodeFinalizer},
			reasons: map[string]string{v1alpha1.VirtualNode: "BadKubeconfig", v1alpha1.CredentialsValid: "Valid"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			remote := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: test.deleted, Finalizers: test.finalizers}}
			for kind, reason := range test.reasons {
				remote.Status.Conditions = append(remote.Status.Conditions, metav1.Condition{Type: kind, Reason: reason})
			}
			var names []string
			for _, p := range connected(remote) {
				names = append(names, p.name)
			}
			assert.Equal(t, test.want, names)
		})
	}
}

func TestWhetherAProgramRuns(t *testing.T) {
	at := func(holder string, second int64) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-system", Name: "lodestone-provisioner"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, RenewTime: ptr.To(metav1.NewMicroTime(time.Unix(second, 0))), LeaseDurationSeconds: ptr.To[int32](15)},
		}
	}
	pods := func(n int32) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-system", Name: "lodestone-provisioner"}, Status: appsv1.DeploymentStatus{Replicas: n}}
	}
	for name, test := range map[string]struct {
		before lease
		now    []runtime.Object
		want   bool
	}{
		"its leader renews the lease":       {before: leaseOf(at("a", 1)), now: []runtime.Object{at("a", 3)}, want: true},
		"it got a leader meanwhile":         {now: []runtime.Object{at("a", 3)}, want: true},
		"nobody renews the lease":           {before: leaseOf(at("a", 1)), now: []runtime.Object{at("a", 1), pods(1)}},
		"its leader gave the lease back":    {before: leaseOf(at("a", 1)), now: []runtime.Object{at("", 3)}},
		"it has pods that need no lease":    {now: []runtime.Object{pods(1)}, want: true},
		"it has no lease and no pods":       {now: []runtime.Object{pods(0)}},
		"it is not installed any more":      {},
		"its lease and namespace went away": {before: leaseOf(at("a", 1))},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unpeering{Options: Options{Namespace: "lodestone-system"}, home: &access.Cluster{Client: fake.NewClientset(test.now...)}}
			runs, err := u.runs(t.Context(), "lodestone-provisioner", test.before)
			require.NoError(t, err)
			assert.Equal(t, test.want, runs)
		})
	}
}
