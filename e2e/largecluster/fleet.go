package largecluster

import (
	"encoding/base64"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
)

const (
	system, storage = "lodestone-system", "lodestone-storage"
	// HomeID is that of the home cluster of a fleet.
	HomeID = "00000000"
	// realClass is the real class of all clusters of a fleet.
	realClass = "disk"
)

// NewRemote returns the r-th remote cluster of a fleet whose home has so many
// claims: it holds the backing claims of its share, and their volumes.
func NewRemote(r, claims int) *Cluster {
	share := claims / 2 / RemoteClusters
	claim := func(j int) int { return 2*(j*RemoteClusters+r) + 1 }
	return newCluster(map[string]*collection{
		"/api/v1/namespaces/" + Namespace + "/persistentvolumeclaims": {apiVersion: "v1", kind: "PersistentVolumeClaim", size: share,
			object: func(j int) runtime.Object { return backingClaim(claim(j)) }},
		VolumesPath: {apiVersion: "v1", kind: "PersistentVolume", size: share,
			object: func(j int) runtime.Object { return realVolume(claim(j)) }},
		"/apis/storage.k8s.io/v1/storageclasses":       {apiVersion: "storage.k8s.io/v1", kind: "StorageClass", size: 1, object: realClassObject},
		"/apis/storage.k8s.io/v1/csistoragecapacities": {apiVersion: "storage.k8s.io/v1", kind: "CSIStorageCapacity", object: noCapacity},
	}, remoteUID(r))
}

// remoteUID is the UID of the r-th remote cluster.
func remoteUID(r int) string { return fmt.Sprintf("00000000-0000-4000-9000-%012d", r+1) }

// NewHome returns the home cluster of a fleet as the provisioner sees it: so many
// virtual claims, each bound and used by a pod, every second with its data at home
// and the others in the clusters that are served at the given URLs in turn.
func NewHome(claims int, remotes []string) *Cluster {
	twins := claims / 2
	return newCluster(map[string]*collection{
		ClaimsPath: {apiVersion: "v1", kind: "PersistentVolumeClaim", size: claims + twins, object: func(j int) runtime.Object {
			if j < claims {
				return virtualClaim(j)
			}
			return backingClaim(2 * (j - claims))
		}},
		VolumesPath: {apiVersion: "v1", kind: "PersistentVolume", size: claims + twins, object: func(j int) runtime.Object {
			if j < claims {
				return virtualVolume(j)
			}
			return realVolume(2 * (j - claims))
		}},
		NodesPath:      {apiVersion: "v1", kind: "Node", size: Nodes, object: nodeObject},
		"/api/v1/pods": {apiVersion: "v1", kind: "Pod", size: claims, object: podObject},
		"/api/v1/namespaces": {apiVersion: "v1", kind: "Namespace", size: 3, object: func(j int) runtime.Object {
			namespace := namespaceObject(0).(*corev1.Namespace)
			namespace.Name = []string{Namespace, system, storage}[j]
			return namespace
		}},
		"/api/v1/namespaces/" + system + "/secrets": {apiVersion: "v1", kind: "Secret", size: len(remotes), object: func(j int) runtime.Object {
			return secretObject(j, remotes[j])
		}},
		"/apis/storage.k8s.io/v1/storageclasses": {apiVersion: "storage.k8s.io/v1", kind: "StorageClass", size: 2,
			object: func(j int) runtime.Object {
				return []runtime.Object{classObject(0), realClassObject(0)}[j]
			}},
		"/apis/storage.k8s.io/v1/volumeattachments": {apiVersion: "storage.k8s.io/v1", kind: "VolumeAttachment", size: twins,
			object: func(j int) runtime.Object {
				return &storagev1.VolumeAttachment{ObjectMeta: meta("", "csi-"+string(UID(2*j)), 2*j, nil), Spec: storagev1.VolumeAttachmentSpec{
					Attacher: driver, NodeName: NodeName(2 * j % Nodes),
					Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(VolumeName(2 * j))},
				}}
			}},
		"/apis/storage.k8s.io/v1/csistoragecapacities": {apiVersion: "storage.k8s.io/v1", kind: "CSIStorageCapacity", object: noCapacity},
		"/apis/storage.k8s.io/v1/csidrivers":           {apiVersion: "storage.k8s.io/v1", kind: "CSIDriver", object: noDriver},
		"/apis/lodestone.dev/v1alpha1/remoteclusters": {apiVersion: v1alpha1.GroupVersion.String(), kind: "RemoteCluster", size: len(remotes),
			object: remoteObject},
		"/apis/lodestone.dev/v1alpha1/volumemoves": {apiVersion: v1alpha1.GroupVersion.String(), kind: "VolumeMove", object: noMove},
		"/apis/lodestone.dev/v1alpha1/volumereplicas": {apiVersion: v1alpha1.GroupVersion.String(), kind: "VolumeReplica",
			object: noReplica},
	}, HomeID+"-0000-4000-9000-000000000000")
}

// clusterOf is where the data of the i-th claim of a fleet is.
func clusterOf(i int) string {
	if i%2 == 0 {
		return keys.Home
	}
	return remoteName(i / 2 % RemoteClusters)
}

func remoteName(r int) string { return fmt.Sprintf("remote-%d", r) }

var place = backing.Place{HomeID: HomeID, StorageNamespace: storage}

func virtualClaim(i int) *corev1.PersistentVolumeClaim {
	claim := claimObject(0).(*corev1.PersistentVolumeClaim)
	claim.ObjectMeta = meta(Namespace, ClaimName(i), i, claim.Annotations)
	claim.Finalizers = []string{"kubernetes.io/pvc-protection"}
	claim.Spec.AccessModes, claim.Spec.VolumeMode = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		ptr.To(corev1.PersistentVolumeFilesystem)
	claim.Spec.VolumeName = VolumeName(i)
	claim.Status.AccessModes = claim.Spec.AccessModes
	if cluster := clusterOf(i); cluster != keys.Home {
		claim.Annotations[keys.Routed] = cluster
	}
	return claim
}

func backingClaim(i int) *corev1.PersistentVolumeClaim {
	virtual := virtualClaim(i)
	at := place.Of(clusterOf(i), v1alpha1.SameName, types.NamespacedName{Namespace: Namespace, Name: virtual.Name}, virtual.UID)
	claim := route.BackingClaim(virtual, route.Route{Cluster: clusterOf(i), Class: v1alpha1.OfferedClass{Name: realClass}}, at, HomeID)
	own := meta(at.Namespace, at.Name, i, nil)
	claim.UID, claim.CreationTimestamp, claim.ManagedFields = backingUID(i), own.CreationTimestamp, own.ManagedFields
	claim.Finalizers = append(claim.Finalizers, "kubernetes.io/pvc-protection")
	delete(claim.Annotations, keys.Unpublished)
	for _, annotation := range []string{"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"} {
		claim.Annotations[annotation] = "yes"
	}
	claim.Spec.VolumeName = "pvc-" + string(backingUID(i))
	claim.Status = virtual.Status
	return claim
}

func backingUID(i int) types.UID {
	return types.UID(fmt.Sprintf("00000000-0000-4000-a000-%012d", i))
}

func realVolume(i int) *corev1.PersistentVolume {
	claim := backingClaim(i)
	real := &corev1.PersistentVolume{
		ObjectMeta: meta("", "pvc-"+string(claim.UID), i, map[string]string{"pv.kubernetes.io/provisioned-by": driver}),
		Spec: corev1.PersistentVolumeSpec{
			Capacity: gibibyte(), AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name,
				UID: claim.UID},
			StorageClassName: realClass, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: volumeObject(i).(*corev1.PersistentVolume).Spec.PersistentVolumeSource,
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	real.UID = types.UID(fmt.Sprintf("00000000-0000-4000-b000-%012d", i))
	real.Finalizers = []string{"kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer"}
	return real
}

func virtualVolume(i int) *corev1.PersistentVolume {
	claim, uid := virtualClaim(i), ""
	if clusterOf(i) != keys.Home {
		uid = remoteUID(i / 2 % RemoteClusters)
	}
	virtual, err := backing.NewVolume(backing.VolumeInput{
		Name: VolumeName(i), Claim: claim, Cluster: clusterOf(i), ClusterUID: uid, Backing: backingClaim(i), Real: realVolume(i),
		Class: virtualclass.Class{Name: "lodestone", ReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
	})
	if err != nil {
		panic(err) // the objects above are wrong
	}
	own := meta("", VolumeName(i), i, nil)
	virtual.UID, virtual.CreationTimestamp, virtual.ManagedFields = types.UID(fmt.Sprintf("00000000-0000-4000-c000-%012d", i)),
		own.CreationTimestamp, own.ManagedFields
	virtual.Annotations["pv.kubernetes.io/provisioned-by"] = keys.Driver
	virtual.Finalizers = []string{"kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer"}
	virtual.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: Namespace, Name: claim.Name,
		UID: claim.UID}
	virtual.Status.Phase = corev1.VolumeBound
	return virtual
}

func realClassObject(int) runtime.Object {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: realClass,
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner:       driver,
		ReclaimPolicy:     ptr.To(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate),
	}
}

func secretObject(r int, url string) *corev1.Secret {
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",`+
		`"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],`+
		`"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{"token":%q}}]}`, url,
		base64.StdEncoding.EncodeToString([]byte(remoteName(r))))
	secret := &corev1.Secret{ObjectMeta: meta(system, remoteName(r), r, nil), Data: map[string][]byte{"kubeconfig": []byte(kubeconfig)}}
	secret.Finalizers = []string{keys.ClusterFinalizer}
	return secret
}

func remoteObject(r int) runtime.Object {
	return &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: remoteName(r), UID: types.UID(fmt.Sprintf("00000000-0000-4000-d000-%012d", r)), Generation: 1,
			Finalizers: []string{keys.VolumesFinalizer}},
		Spec:   v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: system, Name: remoteName(r)}},
		Status: v1alpha1.RemoteClusterStatus{Namespaces: []string{Namespace}},
	}
}

func noCapacity(int) runtime.Object { return &storagev1.CSIStorageCapacity{} }

func noDriver(int) runtime.Object { return &storagev1.CSIDriver{} }

func noMove(int) runtime.Object { return &v1alpha1.VolumeMove{} }

func noReplica(int) runtime.Object { return &v1alpha1.VolumeReplica{} }

// driver is the CSI driver of home.
const driver = "disk.example.com"

func claimObject(i int) runtime.Object {
	if Unbound(i) {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: meta(Namespace, ClaimName(i), i, nil),
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone"),
				Resources: corev1.VolumeResourceRequirements{Requests: gibibyte()}},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
		}
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: meta(Namespace, ClaimName(i), i, map[string]string{
			"pv.kubernetes.io/bind-completed":               "yes",
			"pv.kubernetes.io/bound-by-controller":          "yes",
			"volume.kubernetes.io/storage-provisioner":      keys.Driver,
			"volume.beta.kubernetes.io/storage-provisioner": keys.Driver,
			keys.SelectedNode:                               NodeName(i % Nodes),
		}),
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone"), VolumeName: VolumeName(i),
			Resources: corev1.VolumeResourceRequirements{Requests: gibibyte()}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: gibibyte()},
	}
}

func volumeObject(i int) runtime.Object {
	return &corev1.PersistentVolume{
		ObjectMeta: meta("", VolumeName(i), i, map[string]string{
			keys.Backing: "home/lodestone-storage/pvc-" + string(UID(i)) + "/" + string(UID(i)),
		}),
		Spec: corev1.PersistentVolumeSpec{
			Capacity: gibibyte(),
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: Namespace,
				Name: ClaimName(i), UID: UID(i)},
			NodeAffinity:     locality.Affinity(ClusterOf(i), nil),
			StorageClassName: "lodestone",
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver,
				VolumeHandle:     string(UID(i)),
				VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-disk.example.com"}}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

func nodeObject(i int) runtime.Object { return Node(i) }

// Node returns the i-th node.
func Node(i int) *corev1.Node {
	node := &corev1.Node{ObjectMeta: meta("", NodeName(i), i, nil)}
	node.Labels = map[string]string{"kubernetes.io/hostname": NodeName(i), "topology.kubernetes.io/zone": "eu-central-1a"}
	if cluster := ClusterOf(i); cluster != keys.Home {
		node.Labels[keys.Cluster] = cluster
	}
	for j := range 50 {
		node.Status.Images = append(node.Status.Images,
			corev1.ContainerImage{
				Names: []string{
					fmt.Sprintf("registry.example.com/team/image-%d@sha256:0f343b0931126a20f133d67c2b018a3b5f343b0931126a20f133d67c2b018a3b", j),
				}, SizeBytes: 1 << 28,
			})
	}
	return node
}

func csiNodeObject(i int) runtime.Object {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: NodeName(i)},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: driver, NodeID: NodeName(i), Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(25))},
		}}},
	}
}

// podObject is the pod that has the i-th claim in use.
func podObject(i int) runtime.Object {
	return &corev1.Pod{
		ObjectMeta: meta(Namespace, fmt.Sprintf("database-%d", i), i, nil),
		Spec: corev1.PodSpec{
			NodeName:   NodeName(i % Nodes),
			Containers: []corev1.Container{{Name: "database", Image: "registry.example.com/team/database:16.4-bookworm"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ClaimName(i)},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func classObject(int) runtime.Object {
	return &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "lodestone"},
		Provisioner:       keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}

func namespaceObject(int) runtime.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}}
}

func clusterObject(i int) runtime.Object {
	ready := metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: v1alpha1.Ready}
	if Ready(i) {
		ready.Status = metav1.ConditionTrue
	}
	return &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("remote-%d", i)},
		Status: v1alpha1.RemoteClusterStatus{Conditions: []metav1.Condition{ready},
			StorageClasses: []v1alpha1.OfferedClass{{Name: "standard", Default: true}}},
	}
}

// meta returns metadata as large as that of real objects: who manages which field
// is often the largest part.
func meta(namespace, name string, i int, annotations map[string]string) metav1.ObjectMeta {
	fields := `{"f:metadata":{"f:annotations":{".":{},"f:pv.kubernetes.io/bind-completed":{},"f:pv.kubernetes.io/bound-by-controller":{}}},` +
		`"f:spec":{"f:accessModes":{},"f:resources":{"f:requests":{".":{},"f:storage":{}}},` +
		`"f:storageClassName":{},"f:volumeMode":{},"f:volumeName":{}}}`
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	entry := metav1.ManagedFieldsEntry{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
		Time: &now, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: UID(i), CreationTimestamp: now,
		Annotations: annotations, ManagedFields: []metav1.ManagedFieldsEntry{entry, entry},
	}
}

func gibibyte() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}
