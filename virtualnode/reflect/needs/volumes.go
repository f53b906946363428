package needs

import corev1 "k8s.io/api/core/v1"

// ofVolume adds what a volume of a pod names. Volumes behind claims are not its
// matter: their secrets belong to the cluster that has the volume.
func ofVolume(volume *corev1.Volume, configMaps, secrets names) {
	switch {
	case volume.ConfigMap != nil:
		configMaps.add(volume.ConfigMap.Name)
	case volume.Secret != nil:
		secrets.add(volume.Secret.SecretName)
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			if source.ConfigMap != nil {
				configMaps.add(source.ConfigMap.Name)
			}
			if source.Secret != nil {
				secrets.add(source.Secret.Name)
			}
		}
	case volume.CSI != nil:
		secrets.addLocal(volume.CSI.NodePublishSecretRef)
	case volume.RBD != nil:
		secrets.addLocal(volume.RBD.SecretRef)
	case volume.CephFS != nil:
		secrets.addLocal(volume.CephFS.SecretRef)
	case volume.Cinder != nil:
		secrets.addLocal(volume.Cinder.SecretRef)
	case volume.FlexVolume != nil:
		secrets.addLocal(volume.FlexVolume.SecretRef)
	case volume.ISCSI != nil:
		secrets.addLocal(volume.ISCSI.SecretRef)
	case volume.ScaleIO != nil:
		secrets.addLocal(volume.ScaleIO.SecretRef)
	case volume.StorageOS != nil:
		secrets.addLocal(volume.StorageOS.SecretRef)
	case volume.AzureFile != nil:
		secrets.add(volume.AzureFile.SecretName)
	}
}
