package install

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Where kubeadm keeps what it makes manifests of: in an upgrade, and on a new control-plane node.
const (
	kubeadmConfig = "kubeadm-config"
	kubeadmKey    = "ClusterConfiguration"
	kubeadmForm   = "kubeadm.k8s.io/v1beta4"
)

// keepConfiguration has kubeadm give kube-scheduler the configuration of this node whenever it writes the manifest anew. If it cannot,
// it returns false and says what to do by hand.
func (t *target) keepConfiguration(ctx context.Context) (bool, error) {
	maps := t.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	kept, err := maps.Get(ctx, kubeadmConfig, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, t.Explain("get configmap "+kubeadmConfig+" -n kube-system", err)
	}
	after, err := keeping(kept.Data[kubeadmKey])
	if err != nil {
		t.Say("kubeadm upgrade will take this out of kube-scheduler's manifest again, because ConfigMap kube-system/%s %v: add it there with "+
			"kubectl edit; docs/scheduling.md#your-own-control-plane, step 5, has the lines", kubeadmConfig, err)
		return false, nil
	}
	if after == kept.Data[kubeadmKey] {
		return true, nil
	}
	kept.Data[kubeadmKey] = after
	if _, err := maps.Update(ctx, kept, metav1.UpdateOptions{FieldManager: manager}); err != nil {
		return false, t.Explain("update configmap "+kubeadmConfig+" -n kube-system", err)
	}
	t.Say("changed ConfigMap kube-system/%s, so that kubeadm upgrade keeps this; copy %s to a machine before kubeadm join makes it a "+
		"control-plane node", kubeadmConfig, "/"+lodestonePath)
	return true, nil
}

// keeping returns kubeadm's ClusterConfiguration with kube-scheduler's flag and folder, the same text if it has both. It is pure.
func keeping(configuration string) (string, error) {
	var c map[string]any
	if err := yaml.Unmarshal([]byte(configuration), &c); err != nil {
		return "", fmt.Errorf("is not understood (%w)", err)
	}
	if c["apiVersion"] != kubeadmForm {
		return "", fmt.Errorf("has no %s of %s", kubeadmKey, kubeadmForm)
	}
	const file, folder = "/" + lodestonePath + "/" + configFile, "/" + lodestonePath
	arguments, _, err := unstructured.NestedSlice(c, "scheduler", "extraArgs")
	if err != nil {
		return "", fmt.Errorf("is not understood (%w)", err)
	}
	volumes, _, err := unstructured.NestedSlice(c, "scheduler", "extraVolumes")
	if err != nil {
		return "", fmt.Errorf("is not understood (%w)", err)
	}
	find := func(all []any, key, value string) map[string]any {
		at := slices.IndexFunc(all, func(one any) bool { m, ok := one.(map[string]any); return ok && m[key] == value })
		if at < 0 {
			return nil
		}
		return all[at].(map[string]any)
	}
	flag, volume := find(arguments, "name", "config"), find(volumes, "mountPath", folder)
	switch {
	case flag != nil && flag["value"] != file:
		return "", fmt.Errorf("has another configuration of kube-scheduler (%v)", flag["value"])
	case flag != nil && volume != nil:
		return configuration, nil
	}
	if flag == nil {
		arguments = append(arguments, map[string]any{"name": "config", "value": file})
	}
	if volume == nil {
		volumes = append(volumes, map[string]any{"name": "lodestone", "hostPath": folder, "mountPath": folder, "readOnly": true,
			"pathType": "Directory"})
	}
	if c["scheduler"] == nil {
		c["scheduler"] = map[string]any{}
	}
	if err := unstructured.SetNestedSlice(c, arguments, "scheduler", "extraArgs"); err != nil {
		return "", fmt.Errorf("is not understood (%w)", err)
	}
	if err := unstructured.SetNestedSlice(c, volumes, "scheduler", "extraVolumes"); err != nil {
		return "", fmt.Errorf("is not understood (%w)", err)
	}
	after, err := yaml.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("cannot be written (%w)", err)
	}
	return string(after), nil
}
