package peer

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// managed is the label of what this program makes.
func managed() map[string]string {
	return map[string]string{"app.kubernetes.io/managed-by": "kubectl-lodestone"}
}

// homeCluster returns the HomeCluster that is wanted in the remote cluster: what
// is there, with what the flags say.
func (p Plan) homeCluster(o Options, homeUID string) *remotev1alpha1.HomeCluster {
	want := &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: p.HomeID, Labels: managed()}}
	if p.Home != nil {
		want = p.Home.DeepCopy()
	}
	want.TypeMeta = metav1.TypeMeta{APIVersion: remotev1alpha1.GroupVersion.String(), Kind: "HomeCluster"}
	want.Spec.ClusterUID, want.Spec.User = homeUID, ""
	if p.Auth == Certificate {
		want.Spec.User = p.User()
	}
	if len(o.offer) > 0 {
		want.Spec.Offer = o.offer
	}
	if o.PodSecurity != "" {
		want.Spec.Namespaces.PodSecurity = o.PodSecurity
	}
	if len(o.Namespaces) > 0 {
		want.Spec.Namespaces.Names = o.Namespaces
	}
	return want
}

// secret returns the Secret that is wanted at home; have may be nil.
func (p Plan) secret(have *corev1.Secret, remoteUID string, set func(data map[string][]byte)) *corev1.Secret {
	want := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.Secret.Namespace, Name: p.Secret.Name, Labels: managed()}}
	if have != nil {
		want = have.DeepCopy()
	}
	want.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	want.Annotations[keys.ClusterUID] = remoteUID
	if want.Data == nil {
		want.Data = map[string][]byte{}
	}
	set(want.Data)
	return want
}

// remoteCluster returns the RemoteCluster that is wanted at home.
func (p Plan) remoteCluster(o Options, remoteUID string) *v1alpha1.RemoteCluster {
	want := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: managed()}}
	if p.Remote != nil {
		want = p.Remote.DeepCopy()
	}
	want.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RemoteCluster"}
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	want.Annotations[keys.ClusterUID] = remoteUID
	want.Spec.KubeconfigSecretRef = p.Secret
	want.Spec.Namespaces.Strategy = p.Strategy
	if o.StorageClass != "" {
		want.Spec.StorageClassName = o.StorageClass
	}
	if o.PodNetwork != "" {
		want.Spec.PodNetwork = v1alpha1.PodNetwork(o.PodNetwork)
	}
	if o.VirtualNode != "" {
		want.Spec.VirtualNode = v1alpha1.VirtualNodeMode(o.VirtualNode)
	}
	return want
}

// key returns the key of the Secret that holds the kubeconfig.
func (p Plan) key() string {
	if p.Secret.Key != "" {
		return p.Secret.Key
	}
	return "kubeconfig"
}
