package processes

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// userOf returns as whom the processes of a pod run: as its security context says; nil: as the user of this process.
func userOf(pod *corev1.Pod) *syscall.Credential {
	s := pod.Spec.SecurityContext
	if s == nil || s.RunAsUser == nil || *s.RunAsUser == 0 {
		return nil
	}
	user := &syscall.Credential{Uid: uint32(*s.RunAsUser)}
	if s.RunAsGroup != nil {
		user.Gid = uint32(*s.RunAsGroup)
	}
	for _, group := range s.SupplementalGroups {
		user.Groups = append(user.Groups, uint32(group))
	}
	if s.FSGroup != nil {
		user.Groups = append(user.Groups, uint32(*s.FSGroup))
	}
	return user
}

// open lets a user other than root reach the programs and folders of a pod, as a kubelet does: its volumes belong to the pod's fsGroup, its
// emptyDirs to everybody. Nobody looks at what is below a volume's root: it has the fsGroup already, or is new.
func (r *run) open(programs []string) error {
	group := -1
	if s := r.pod.Spec.SecurityContext; s.FSGroup != nil {
		group = int(*s.FSGroup)
	}
	ways := []string{r.dir}
	for _, volume := range r.pod.Spec.Volumes {
		path := r.folders[volume.Name]
		mode := os.FileMode(0o777)
		switch {
		case volume.PersistentVolumeClaim != nil && group < 0:
			continue
		case volume.PersistentVolumeClaim != nil:
			mode = 0o775 | os.ModeSetgid
		case volume.Secret != nil:
			mode = 0o755
		}
		if err := os.Chown(path, -1, group); err != nil {
			return fmt.Errorf("give volume %s to group %d: %w", volume.Name, group, err)
		}
		if err := os.Chmod(path, mode); err != nil {
			return fmt.Errorf("open volume %s: %w", volume.Name, err)
		}
		ways = append(ways, filepath.Dir(path))
	}
	for _, program := range programs {
		ways = append(ways, filepath.Dir(program))
	}
	for _, way := range ways {
		if err := passable(way); err != nil {
			return err
		}
	}
	return nil
}

// passable lets everybody through a folder and those above it.
func passable(folder string) error {
	for ; folder != "/" && folder != "."; folder = filepath.Dir(folder) {
		s, err := os.Stat(folder)
		if err != nil {
			return fmt.Errorf("open the way through %s: %w", folder, err)
		}
		if s.Mode()&0o111 == 0o111 {
			continue
		}
		if err := os.Chmod(folder, s.Mode()|0o111); err != nil {
			return fmt.Errorf("open the way through %s: %w", folder, err)
		}
	}
	return nil
}
