package server_test

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The file is what kubectl lodestone why is tested with.
func TestAPreferenceIsExplainedWithNumbers(t *testing.T) {
	s := newServer()
	s.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	s.View.Classes.Set("lodestone", &snapshot.Class{})
	s.View.StorageClasses().Set("disk", &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "disk", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
	})
	s.View.Room.Set("all", snapshot.Capacity{ClassName: "disk", Bytes: 20 << 10})
	s.View.Clusters.Set("west", &snapshot.Cluster{Ready: true, Offered: []v1alpha1.OfferedClass{
		{Name: "ssd", Default: true, Free: ptr.To(resource.MustParse("4Ki"))},
	}})
	for i, cluster := range []string{keys.Home, "west", keys.Home} {
		uid := fmt.Sprint(i)
		s.View.Claims.Set("app/data-db-"+uid, &snapshot.Claim{UID: uid, VolumeName: uid})
		s.View.Volumes.Set(uid, &snapshot.Volume{Cluster: cluster, Bytes: 100, ClaimUID: uid})
	}
	s.View.Claims.Set("app/data-db-3", &snapshot.Claim{UID: "new", ClassName: "lodestone", Asked: 1 << 10})
	pod := podWith("data-db-3")
	pod.Name = "db-3"
	pod.Annotations = map[string]string{keys.Near: "data"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", Controller: ptr.To(true)}}

	names := []string{"new", "home-1", "west"}
	got := ask[extenderv1.HostPriorityList](t, s.Handler(), "/prioritize", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names})
	assert.Equal(t, extenderv1.HostPriorityList{{Host: "new"}, {Host: "home-1", Score: 3}, {Host: "west", Score: 7}}, got, "of a node that is not known yet nothing is said")
	code, body := get(s, "/explain?namespace=app&pod=db-3")
	require.Equal(t, http.StatusOK, code, body)
	want, err := os.ReadFile("testdata/explained.json")
	require.NoError(t, err)
	assert.JSONEq(t, string(want), body)
}

// An unbound claim is no reason to prefer a node, nor to remember the pod.
func TestNothingIsExplainedWhereNothingDraws(t *testing.T) {
	s := newServer()
	s.View.Classes.Set("lodestone", &snapshot.Class{})
	s.View.Claims.Set("app/new", &snapshot.Claim{UID: "new", ClassName: "lodestone"})
	names := []string{"home-1", "west"}
	got := ask[extenderv1.HostPriorityList](t, s.Handler(), "/prioritize", extenderv1.ExtenderArgs{Pod: podWith("new"), NodeNames: &names})
	for _, node := range got {
		assert.Zero(t, node.Score)
	}
	code, body := get(s, "/explain?namespace=app&pod=web")
	assert.Equal(t, http.StatusNotFound, code, body)
}
