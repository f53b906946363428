package unpeer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

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
			assert.Equal(t, test.taken, take(secret, v1alpha1.SecretKeyRef{Key: test.key}, test.keep))
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
			assert.Equal(t, test.want, sharer(&west, []v1alpha1.RemoteCluster{west, test.other}, test.deletes))
		})
	}
}
