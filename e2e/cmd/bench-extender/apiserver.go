package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// collection is how many objects of a kind there are, and the i-th of them.
type collection struct {
	apiVersion, kind string
	size             int
	object           func(i int) runtime.Object
}

// largeCluster streams the objects of a large home cluster to watches that ask
// for the initial state, and then nothing more.
func largeCluster(claims int) http.Handler {
	collections := map[string]collection{
		"/api/v1/persistentvolumeclaims":              {"v1", "PersistentVolumeClaim", claims, claimObject},
		"/api/v1/persistentvolumes":                   {"v1", "PersistentVolume", claims, volumeObject},
		"/api/v1/nodes":                               {"v1", "Node", allNodes, nodeObject},
		"/api/v1/namespaces":                          {"v1", "Namespace", 0, nil},
		"/apis/storage.k8s.io/v1/storageclasses":      {"storage.k8s.io/v1", "StorageClass", 0, nil},
		"/apis/lodestone.dev/v1alpha1/remoteclusters": {v1alpha1.GroupVersion.String(), "RemoteCluster", allClusters, clusterObject},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		collection, ok := collections[r.URL.Path]
		switch {
		case !ok:
			http.NotFound(w, r)
		case r.URL.Query().Get("sendInitialEvents") != "true":
			http.Error(w, "only streams of the initial state are served here", http.StatusBadRequest)
		default:
			collection.stream(w, r)
		}
	})
}

func (c collection) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	send := func(kind string, object runtime.Object) {
		// A watcher that is gone ends the request.
		_ = encoder.Encode(map[string]any{"type": kind, "object": object})
	}
	for i := range c.size {
		object := c.object(i)
		c.setKind(object)
		send("ADDED", object)
	}
	end := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1",
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	c.setKind(end)
	send("BOOKMARK", end)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func (c collection) setKind(object runtime.Object) {
	object.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(c.apiVersion, c.kind))
}

func claimObject(i int) runtime.Object {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: meta(namespace, claimName(i), i, map[string]string{
			"pv.kubernetes.io/bind-completed":               "yes",
			"pv.kubernetes.io/bound-by-controller":          "yes",
			"volume.kubernetes.io/storage-provisioner":      keys.Driver,
			"volume.beta.kubernetes.io/storage-provisioner": keys.Driver,
			keys.SelectedNode:                               nodeName(i % allNodes),
		}),
		Spec:   corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone"), VolumeName: "pvc-" + string(uid(i)), Resources: corev1.VolumeResourceRequirements{Requests: gibibyte()}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: gibibyte()},
	}
}

func volumeObject(i int) runtime.Object {
	return &corev1.PersistentVolume{
		ObjectMeta: meta("", "pvc-"+string(uid(i)), i, map[string]string{
			keys.Backing: "home/lodestone-storage/pvc-" + string(uid(i)) + "/" + string(uid(i)),
		}),
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               gibibyte(),
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: namespace, Name: claimName(i), UID: uid(i)},
			NodeAffinity:           locality.Affinity(clusterOf(i), nil),
			StorageClassName:       "lodestone",
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: string(uid(i)), VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-disk.example.com"}}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

func nodeObject(i int) runtime.Object {
	node := &corev1.Node{ObjectMeta: meta("", nodeName(i), i, nil)}
	node.Labels = map[string]string{"kubernetes.io/hostname": nodeName(i), "topology.kubernetes.io/zone": "eu-central-1a"}
	if cluster := clusterOf(i); cluster != keys.Home {
		node.Labels[keys.Cluster] = cluster
	}
	for j := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/team/image-%d@sha256:0f343b0931126a20f133d67c2b018a3b5f343b0931126a20f133d67c2b018a3b", j)}, SizeBytes: 1 << 28})
	}
	return node
}

func clusterObject(i int) runtime.Object {
	return &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("remote-%d", i), ResourceVersion: "1"}}
}

// meta returns metadata as large as that of real objects: who manages which field
// is often the largest part.
func meta(namespace, name string, i int, annotations map[string]string) metav1.ObjectMeta {
	fields := `{"f:metadata":{"f:annotations":{".":{},"f:pv.kubernetes.io/bind-completed":{},"f:pv.kubernetes.io/bound-by-controller":{}}},"f:spec":{"f:accessModes":{},"f:resources":{"f:requests":{".":{},"f:storage":{}}},"f:storageClassName":{},"f:volumeMode":{},"f:volumeName":{}}}`
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	entry := metav1.ManagedFieldsEntry{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: uid(i), ResourceVersion: "1", CreationTimestamp: now,
		Annotations: annotations, ManagedFields: []metav1.ManagedFieldsEntry{entry, entry},
	}
}

func gibibyte() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}
