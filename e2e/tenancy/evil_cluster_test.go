package tenancy

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/bounded"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestAHostileClusterCannotHoldUpHome has a RemoteCluster lead to an API server
// that answers anything, and looks whether claims of home go on meanwhile, and that
// home reads no more than it should and goes nowhere else.
func TestAHostileClusterCannotHoldUpHome(t *testing.T) {
	user := newTenant(t)
	var trapped atomic.Int64
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { trapped.Add(1) }))
	t.Cleanup(trap.Close)
	junk := strings.Repeat(`{"metadata":{"name":"x","uid":"x","annotations":{"x":"`+strings.Repeat("x", 1<<16)+`"}}},`, 16)
	for name, answer := range map[string]http.HandlerFunc{
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, trap.URL+r.URL.Path, http.StatusTemporaryRedirect)
		},
		"garbage": func(w http.ResponseWriter, _ *http.Request) {
			object(w, "\x00\xff}{<html>"+strings.Repeat("[", 100_000))
		},
		"yaml": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/yaml")
			_, _ = w.Write([]byte("a: &a [x, x]\nb: &b [*a, *a]\n"))
		},
		"other kinds": func(w http.ResponseWriter, r *http.Request) {
			object(w, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"x"}}]}`)
		},
		"endless answers": func(w http.ResponseWriter, r *http.Request) {
			object(w, `{"kind":"List","items":[`)
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte(junk)); err != nil {
					return
				}
			}
		},
		"endless failures": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte(junk)); err != nil {
					return
				}
			}
		},
		"endless pages": func(w http.ResponseWriter, _ *http.Request) {
			object(w, `{"kind":"PersistentVolumeList","apiVersion":"v1","metadata":{"continue":"more","resourceVersion":"1"},"items":[`+strings.TrimSuffix(junk, ",")+`]}`)
		},
		"sizes that take for ever": lists(func(kind string) []string {
			return []string{`{"metadata":{"name":"x","uid":"x"},"spec":{"capacity":{"storage":"1e1000000000"}},"capacity":"1234567890123456789012e1000000000","provisioner":"x"}`}
		}),
		"one byte at a time": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				object(w, " ")
				time.Sleep(100 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			claim := "evil-" + strings.ReplaceAll(name, " ", "-")
			there := newEvil(t, claim, answer)
			register(t, there)
			await.Until(t, "home asks", func() bool { return there.asked.Load() > 2 })
			user.claim(claim, nil)
			user.pod(fabric.AtHome(fabric.NewPod(user.namespace, claim, claim)))
			user.bound(claim)
			await.Never(t, "home must not follow", func() bool { return trapped.Load() > 0 })
			// Of each of its four kinds home reads one answer, and none faster than it should.
			assert.Less(t, there.sent.Load(), int64(8*bounded.MaxAnswer))
		})
	}
}

// register makes a RemoteCluster that leads to a hostile API server.
func register(t *testing.T, there *evil) {
	t.Helper()
	require.NoError(t, bed.Register(t.Context(), there.id, there.kubeconfig(t)))
	t.Cleanup(func() {
		there.says(lists(func(string) []string { return nil }))
		there.CloseClientConnections()
		ctx := context.WithoutCancel(t.Context())
		_, err := bed.Home.Kubectl(ctx, "", "delete", "remotecluster", there.id, "--wait=false")
		require.NoError(t, err)
	})
}

// TestAHostileClusterPutsNothingIntoAVolume has a hostile cluster make a volume, and
// say of it all that could reach something of home if it were believed.
func TestAHostileClusterPutsNothingIntoAVolume(t *testing.T) {
	user := newTenant(t)
	forged := func(kind string) []string {
		switch kind {
		case "StorageClass":
			return []string{`{"metadata":{"name":"fast","uid":"c","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"disk.evil.test","volumeBindingMode":"Immediate"}`}
		case "PersistentVolumeClaim":
			claim := claimOf(t, bed.Home, user.namespace, "data")
			return []string{fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"data","uid":"shadow","resourceVersion":"9","labels":{%q:%q,%q:%q},"annotations":{%q:%q}},
				"spec":{"volumeName":"real","storageClassName":"fast","resources":{"requests":{"storage":"1Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`,
				user.namespace, keys.ClaimUID, claim.UID, keys.HomeID, homeID(t), keys.Claim, user.namespace+"/data")}
		case "PersistentVolume":
			return []string{fmt.Sprintf(`{"metadata":{"name":"real","uid":"real","labels":{"a":"b"},"annotations":{%q:"home/lodestone-storage/x/y"}},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],
				"hostPath":{"path":"/etc"},"local":{"path":"/"},"mountOptions":["suid"],"storageClassName":"home-now","persistentVolumeReclaimPolicy":"Delete",
				"csi":{"driver":"disk.home.test","volumeHandle":"another","nodePublishSecretRef":{"namespace":"kube-system","name":"token"}},
				"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["home-1"]}]}]}},
				"claimRef":{"namespace":%q,"name":"data","uid":"shadow"}}}`, keys.Backing, user.namespace)}
		}
		return nil
	}
	there := newEvil(t, "evil", lists(func(kind string) []string {
		if kind == "PersistentVolumeClaim" && claimOf(t, bed.Home, user.namespace, "data") == nil {
			return nil
		}
		return forged(kind)
	}))
	_, err := bed.Home.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "evil-1", Labels: map[string]string{keys.Cluster: "evil"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = bed.Home.Client().CoreV1().Nodes().Delete(context.Background(), "evil-1", metav1.DeleteOptions{})
	})
	user.claim("data", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{keys.SelectedNode: "evil-1", keys.Routed: "evil"}
	})
	register(t, there)
	claim, volume := user.bound("data")
	assert.Equal(t, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: keys.Driver, VolumeHandle: "evil/" + user.namespace + "/data/shadow"}}, volume.Spec.PersistentVolumeSource)
	assert.Empty(t, volume.Spec.MountOptions)
	assert.Equal(t, map[string]string{keys.Cluster: "evil"}, volume.Labels)
	assert.Equal(t, "evil/"+user.namespace+"/data/shadow", volume.Annotations[keys.Backing])
	require.Len(t, volume.Spec.NodeAffinity.Required.NodeSelectorTerms, 1)
	for _, e := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions {
		assert.Equal(t, keys.Cluster, e.Key)
	}
	assert.Equal(t, "pvc-"+string(claim.UID), volume.Name)
	assert.Equal(t, fabric.Class, volume.Spec.StorageClassName)
	// It never ends what it was asked to delete: the administrator takes the volume away.
	t.Cleanup(func() {
		_, err := bed.Home.Kubectl(context.Background(), "", "patch", "pv", volume.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null},"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
		require.NoError(t, err)
		require.NoError(t, bed.Home.Client().CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{}))
	})
}
