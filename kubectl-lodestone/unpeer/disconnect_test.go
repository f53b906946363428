package unpeer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
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
			ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-system", Name: "lodestone-provisioner"},
			Status:     appsv1.DeploymentStatus{Replicas: n}}
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
			u := &unpeering{Options: Options{Namespace: "lodestone-system"}, home: &cli.Cluster{Client: fake.NewClientset(test.now...)}}
			runs, err := u.runs(t.Context(), "lodestone-provisioner", test.before)
			require.NoError(t, err)
			assert.Equal(t, test.want, runs)
		})
	}
}

func TestAKubeconfigIsTakenOrKeptUnderAKeyThatNobodyReads(t *testing.T) {
	all := func() map[string][]byte {
		return map[string][]byte{"kubeconfig": []byte("first"), "other": []byte("second")}
	}
	for name, test := range map[string]struct {
		data  map[string][]byte
		key   string
		keep  bool
		taken bool
		want  map[string][]byte
	}{
		"one of peer goes": {data: all(), taken: true, want: map[string][]byte{"other": []byte("second")}},
		"one made by hand is kept": {data: all(), keep: true, taken: true,
			want: map[string][]byte{"kubeconfig.forgotten": []byte("first"), "other": []byte("second")}},
		"under its own key": {data: all(), key: "other", keep: true, taken: true,
			want: map[string][]byte{"kubeconfig": []byte("first"), "other.forgotten": []byte("second")}},
		"a second run keeps what the first one kept": {data: map[string][]byte{"kubeconfig.forgotten": []byte("first")}, keep: true,
			want: map[string][]byte{"kubeconfig.forgotten": []byte("first")}},
		"an empty Secret": {keep: true},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{Data: test.data}
			assert.Equal(t, test.taken, removeKey(secret, v1alpha1.SecretKeyRef{Key: test.key}, test.keep))
			assert.Equal(t, test.want, secret.Data)
		})
	}
}

func TestAnotherRemoteClusterKeepsItsKubeconfig(t *testing.T) {
	cluster := func(name, namespace, secret, key string) v1alpha1.RemoteCluster {
		return v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RemoteClusterSpec{
			KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: namespace, Name: secret, Key: key}}}
	}
	west := cluster("west", "system", "logins", "")
	for name, test := range map[string]struct {
		other   v1alpha1.RemoteCluster
		deletes bool
		want    string
	}{
		"the same key": {other: cluster("east", "system", "logins", "kubeconfig"), want: "east"},
		"another key":  {other: cluster("east", "system", "logins", "east")},
		"another key of a Secret that is deleted": {other: cluster("east", "system", "logins", "east"), deletes: true, want: "east"},
		"another Secret":    {other: cluster("east", "system", "east", ""), deletes: true},
		"another namespace": {other: cluster("east", "default", "logins", ""), deletes: true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, otherUser(&west, []v1alpha1.RemoteCluster{west, test.other}, test.deletes))
		})
	}
}
