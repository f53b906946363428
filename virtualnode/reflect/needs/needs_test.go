package needs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func local(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func env(name string) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "PLAIN", Value: "x"},
		{Name: "FIELD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "C", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local(name + "-c"),
			Key: "k"}}},
		{Name: "S", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local(name + "-s"), Key: "k",
			Optional: ptr.To(true)}}},
	}
}

func envFrom(name string) []corev1.EnvFromSource {
	return []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local(name + "-c")}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local(name + "-s"), Optional: ptr.To(true)}},
	}
}

func volumes(sources ...corev1.VolumeSource) *corev1.Pod {
	pod := &corev1.Pod{}
	for _, source := range sources {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: source})
	}
	return pod
}

func TestPodNeedsWhatItNames(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want Set
	}{
		"nothing": {pod: &corev1.Pod{}},
		"pull secrets": {
			pod:  &corev1.Pod{Spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{local("b"), local("a"), local(""), local("a")}}},
			want: Set{Secrets: []string{"a", "b"}},
		},
		"variables of all kinds of container": {
			pod: &corev1.Pod{Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{
					{Env: env("init"), EnvFrom: envFrom("init-from")},
					{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Env: env("sidecar")},
				},
				Containers:          []corev1.Container{{EnvFrom: envFrom("from")}, {Env: env("second")}},
				EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: env("ephemeral")}}},
			}},
			want: Set{
				ConfigMaps: []string{"ephemeral-c", "from-c", "init-c", "init-from-c", "second-c", "sidecar-c"},
				Secrets:    []string{"ephemeral-s", "from-s", "init-from-s", "init-s", "second-s", "sidecar-s"},
			},
		},
		"volumes of ConfigMaps and Secrets": {
			pod: volumes(
				corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("settings")}},
				corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "password", Optional: ptr.To(true)}},
				corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
				corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
			),
			want: Set{ConfigMaps: []string{"settings"}, Secrets: []string{"password"}},
		},
		"projected volumes": {
			pod: volumes(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local(RootCA)}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("settings")}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: local("password")}},
				{DownwardAPI: &corev1.DownwardAPIProjection{}},
			}}}),
			want: Set{ConfigMaps: []string{"settings"}, Secrets: []string{"password"}},
		},
		"secrets of inline volumes": {
			pod: volumes(
				corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: ptr.To(local("csi"))}},
				corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}},
				corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{SecretRef: ptr.To(local("rbd"))}},
				corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{SecretRef: ptr.To(local("cephfs"))}},
				corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{SecretRef: ptr.To(local("cinder"))}},
				corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{SecretRef: ptr.To(local("flex"))}},
				corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: ptr.To(local("iscsi"))}},
				corev1.VolumeSource{ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: ptr.To(local("scaleio"))}},
				corev1.VolumeSource{StorageOS: &corev1.StorageOSVolumeSource{SecretRef: ptr.To(local("storageos"))}},
				corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "azure"}},
			),
			want: Set{Secrets: []string{"azure", "cephfs", "cinder", "csi", "flex", "iscsi", "rbd", "scaleio", "storageos"}},
		},
		"names that no object has are left out": {
			pod: volumes(
				corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "../other/secret"}},
				corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("Upper")}},
			),
		},
		"token Secrets are made for pods, not copied": {
			pod: volumes(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: Token("1234")}}),
		},
		"a home API token on request": {
			pod:  &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Token: "vault"}}},
			want: Set{Audience: "vault"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, Of(test.pod))
		})
	}
}

func TestPodNeedsThingsInARemoteClusterOnceAcceptedUntilItsEnd(t *testing.T) {
	running := []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	ended := []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"accepted":         {change: func(*corev1.Pod) {}, want: true},
		"not scheduled":    {change: func(pod *corev1.Pod) { pod.Spec.NodeName = "" }},
		"not yet accepted": {change: func(pod *corev1.Pod) { pod.Finalizers = []string{"other"} }},
		"being deleted":    {change: func(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.Now()) }, want: true},
		"succeeded": {change: func(pod *corev1.Pod) {
			pod.Status = corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: ended}
		}},
		"failed before any container": {change: func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }},
		"called failed while it runs": {
			change: func(pod *corev1.Pod) {
				pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: running}
			}, want: true,
		},
		"called failed while a sidecar runs": {
			change: func(pod *corev1.Pod) {
				pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: ended, InitContainerStatuses: running}
			}, want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{keys.RemotePodFinalizer}}, Spec: corev1.PodSpec{NodeName: "west"}}
			test.change(pod)
			assert.Equal(t, test.want, Anything(pod))
		})
	}
}
