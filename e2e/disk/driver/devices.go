package driver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// run runs a command and returns what it prints; an error holds what it says.
func run(ctx context.Context, name string, args ...string) (string, error) {
	output, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	text := strings.TrimSpace(string(output))
	if err != nil {
		return text, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return text, nil
}

// deviceOf returns the loop device of an image, empty if it is not attached.
func deviceOf(ctx context.Context, image string) (string, error) {
	text, err := run(ctx, "losetup", "--associated", image, "--noheadings", "--output", "NAME")
	if err != nil {
		return "", err
	}
	device, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(device), nil
}

// attach attaches an image, unless it is attached, and returns its device.
func attach(ctx context.Context, image string) (string, error) {
	device, err := deviceOf(ctx, image)
	if err != nil || device != "" {
		return device, err
	}
	return run(ctx, "losetup", "--find", "--show", image)
}

// detach undoes attach; the device is gone when nobody uses it any more.
func detach(ctx context.Context, image string) error {
	device, err := deviceOf(ctx, image)
	if err != nil || device == "" {
		return err
	}
	_, err = run(ctx, "losetup", "--detach", device)
	return err
}

// growDevice makes a device as large as its image.
func growDevice(ctx context.Context, device string) error {
	_, err := run(ctx, "losetup", "--set-capacity", device)
	return err
}

// mount mounts a device or binds a path. The target is made if it is missing.
func mount(ctx context.Context, source, target string, options ...string) error {
	if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(target, 0o750); err != nil {
			return err
		}
	}
	args := []string{source, target}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	_, err := run(ctx, "mount", args...)
	return err
}

func unmount(ctx context.Context, target string) error {
	mounted, err := isMounted(target)
	if err != nil || !mounted {
		return err
	}
	_, err = run(ctx, "umount", target)
	return err
}

// isMounted reports whether something is mounted at a path.
func isMounted(target string) (bool, error) {
	if real, err := filepath.EvalSymlinks(target); err == nil {
		target = real
	}
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	defer file.Close()
	escaped := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(target)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && fields[4] == escaped {
			return true, nil
		}
	}
	return false, lines.Err()
}

// flush writes what file systems on loop devices hold in memory into the images.
func flush() { unix.Sync() }

// makeFile makes an empty file for a device to be bound to.
func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
}
