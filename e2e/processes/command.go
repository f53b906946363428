package processes

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// everywhere is a flag's address that means all those of the pod.
var everywhere = regexp.MustCompile(`(^|=)(?:0\.0\.0\.0|\[::\])?:(\d+)$`)

// command returns the command line of a container, its paths and addresses
// replaced by those of this machine, and its environment.
func (r *run) command(container corev1.Container, program string) (argv, env []string) {
	values := map[string]string{}
	for _, variable := range container.Env {
		value := variable.Value
		if variable.ValueFrom != nil && variable.ValueFrom.FieldRef != nil {
			value = r.field(variable.ValueFrom.FieldRef.FieldPath)
		}
		values[variable.Name] = r.local(container, value)
		env = append(env, variable.Name+"="+values[variable.Name])
	}
	line := slices.Concat(container.Command, container.Args)
	if program != "" {
		argv = append(argv, program)
		line = container.Args
		if len(container.Command) > 1 {
			line = slices.Concat(container.Command[1:], container.Args)
		}
	}
	for _, arg := range line {
		for name, value := range values {
			arg = strings.ReplaceAll(arg, "$("+name+")", value)
		}
		argv = append(argv, everywhere.ReplaceAllString(r.local(container, arg), "${1}"+r.ip+":${2}"))
	}
	return argv, env
}

// field returns what the downward API has of a pod.
func (r *run) field(path string) string {
	switch path {
	case "metadata.name":
		return r.pod.Name
	case "metadata.namespace":
		return r.pod.Namespace
	case "metadata.uid":
		return string(r.pod.UID)
	case "spec.nodeName":
		return r.pod.Spec.NodeName
	case "status.podIP", "status.podIPs":
		return r.ip
	}
	return ""
}

// local replaces the paths at which a container has volumes, and devices.
func (r *run) local(container corev1.Container, text string) string {
	mounts := slices.Clone(container.VolumeMounts)
	for _, device := range container.VolumeDevices {
		mounts = append(mounts, corev1.VolumeMount{Name: device.Name, MountPath: device.DevicePath})
	}
	// A mount within another one first.
	slices.SortFunc(mounts, func(a, b corev1.VolumeMount) int { return len(b.MountPath) - len(a.MountPath) })
	for _, mount := range mounts {
		path := regexp.MustCompile(`(^|[^\w/.-])` + regexp.QuoteMeta(strings.TrimSuffix(mount.MountPath, "/")) + `($|[^\w.-])`)
		text = path.ReplaceAllString(text, "${1}"+filepath.Join(r.folders[mount.Name], mount.SubPath)+"${2}")
	}
	return text
}
