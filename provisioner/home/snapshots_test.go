package home_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic/fake"

	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/home"
)

// resources fakes discovery with these API resources; an empty list means that the API is
// absent.
type resources struct {
	discovery.ServerResourcesInterface
	mu    sync.Mutex
	names []string
	err   error
}

func (r *resources) serve(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = names
}

func (r *resources) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	if len(r.names) == 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	}
	list := &metav1.APIResourceList{}
	for _, name := range r.names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

func TestHas(t *testing.T) {
	r := &resources{}
	for _, row := range []struct {
		names []string
		want  bool
	}{
		{nil, false},
		{[]string{"volumesnapshots"}, false},
		{[]string{"volumesnapshotcontents", "volumesnapshots", "volumesnapshots/status"}, true},
	} {
		r.serve(row.names...)
		has, err := home.Has(r)
		require.NoError(t, err)
		assert.Equal(t, row.want, has, row.names)
	}
	r.err = apierrors.NewInternalError(assert.AnError)
	_, err := home.Has(r)
	require.Error(t, err, "nothing is known")
}

func TestSnapshotsAreSeenOnceTheirAPIIsThere(t *testing.T) {
	object := func(kind, namespace, name string, content map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: content}
		o.SetAPIVersion(volumesnapshot.GroupVersion.String())
		o.SetKind(kind)
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{volumesnapshot.Snapshots: "VolumeSnapshotList",
			volumesnapshot.Contents: "VolumeSnapshotContentList"},
		object("VolumeSnapshot", "shop", "friday",
			map[string]any{"status": map[string]any{"boundVolumeSnapshotContentName": "c", "restoreSize": "1Gi"}}),
		object("VolumeSnapshotContent", "", "c", map[string]any{"spec": map[string]any{
			"driver": "lodestone.dev", "volumeSnapshotRef": map[string]any{"namespace": "shop", "name": "friday"},
			"source": map[string]any{"volumeHandle": "west/shop/data/b1"}}}))
	r := &resources{}
	h := home.NewSnapshots(client, r)
	assert.Equal(t, home.Unknown, h.State())
	changed := make(chan types.NamespacedName, 10)
	h.Subscribe(home.Listener{SnapshotChanged: func(of types.NamespacedName) { changed <- of }})
	go h.Run(t.Context())
	state := func(want home.State) {
		t.Helper()
		require.Eventually(t, func() bool { return h.State() == want }, 20*time.Second, time.Millisecond)
	}
	state(home.Absent)
	assert.Nil(t, h.Snapshot(types.NamespacedName{Namespace: "shop", Name: "friday"}))
	assert.Empty(t, h.Contents())

	r.serve("volumesnapshots", "volumesnapshotcontents")
	h.Discover()
	state(home.Served)
	friday := h.Snapshot(types.NamespacedName{Namespace: "shop", Name: "friday"})
	require.NotNil(t, friday)
	assert.Equal(t, "1Gi", friday.Status.RestoreSize.String())
	assert.Equal(t, "lodestone.dev", h.Content("c").Spec.Driver)
	assert.Len(t, h.ContentsOf(types.NamespacedName{Namespace: "shop", Name: "data"}), 1)
	assert.Empty(t, h.ContentsOf(types.NamespacedName{Namespace: "bank", Name: "data"}))
	assert.Equal(t, "friday", (<-changed).Name)
}

func TestWithoutAHomeThereAreNoSnapshots(t *testing.T) {
	var h *home.Snapshots
	assert.Equal(t, home.Absent, h.State())
	assert.Nil(t, h.Snapshot(types.NamespacedName{Namespace: "shop", Name: "friday"}))
	assert.Nil(t, h.Content("c"))
	assert.Empty(t, h.ContentsOf(types.NamespacedName{Namespace: "shop", Name: "data"}))
	h.Discover()
}

// versions fakes discovery of group snapshots: what each version serves.
type versions struct {
	discovery.ServerResourcesInterface
	served map[string][]string
}

func (v versions) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	names, ok := v.served[version]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	}
	list := &metav1.APIResourceList{}
	for _, name := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

func TestGroupsAreReadInTheBestVersionThatIsServed(t *testing.T) {
	const group = "groupsnapshot.storage.k8s.io/"
	whole := []string{"volumegroupsnapshots", "volumegroupsnapshotcontents", "volumegroupsnapshotclasses"}
	for name, row := range map[string]struct {
		served map[string][]string
		want   string
	}{
		"none":                                   {},
		"only one whose contents say too little": {served: map[string][]string{group + "v1beta1": whole}},
		"the one before the final one": {served: map[string][]string{group + "v1beta1": whole, group + "v1beta2": whole},
			want: "v1beta2"},
		"the final one": {served: map[string][]string{group + "v1": whole, group + "v1beta2": whole}, want: "v1"},
		"half of the final one": {served: map[string][]string{group + "v1": whole[:1], group + "v1beta2": whole},
			want: "v1beta2"},
	} {
		t.Run(name, func(t *testing.T) {
			version, served, err := home.GroupVersion(versions{served: row.served})
			require.NoError(t, err)
			assert.Equal(t, row.want != "", served)
			assert.Equal(t, row.want, version.Version)
		})
	}
}
