package wire

// skip consumes a value of any type, and checks that it is one.
func (s *scanner) skip() bool {
	switch c := s.next(); c {
	case '"':
		return s.skipString()
	case '{', '[':
		if s.depth++; s.depth > maxDepth {
			return false
		}
		s.at++
		ok := s.skipMembers(c == '{')
		s.depth--
		return ok
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	return s.skipNumber()
}

// skipMembers consumes the rest of an object, or of an array.
func (s *scanner) skipMembers(object bool) bool {
	closing := byte(']')
	if object {
		closing = '}'
	}
	if s.take(closing) {
		return true
	}
	for {
		if object && (s.next() != '"' || !s.skipString() || !s.take(':')) {
			return false
		}
		if !s.skip() {
			return false
		}
		if !s.take(',') {
			return s.take(closing)
		}
	}
}

// skipString consumes a string, which starts here. As encoding/json does, it
// takes any bytes beyond ASCII.
func (s *scanner) skipString() bool {
	for s.at++; ; {
		s.toSpecial()
		if s.at == len(s.text) {
			return false
		}
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return true
		case c >= 0x80:
			s.at++
		case c != '\\' || !s.skipEscape():
			return false
		}
	}
}

func (s *scanner) skipEscape() bool {
	rest := s.text[s.at+1:]
	if len(rest) == 0 {
		return false
	}
	switch rest[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at += 2
		return true
	case 'u':
		if len(rest) < 5 {
			return false
		}
		for _, c := range rest[1:5] {
			if lower := c | 0x20; (c < '0' || c > '9') && (lower < 'a' || lower > 'f') {
				return false
			}
		}
		s.at += 6
		return true
	}
	return false
}

// skipNumber consumes a number as JSON defines it.
func (s *scanner) skipNumber() bool {
	s.takeHere('-')
	if !s.takeHere('0') && !s.skipDigits() {
		return false
	}
	if s.takeHere('.') && !s.skipDigits() {
		return false
	}
	if s.takeHere('e') || s.takeHere('E') {
		_ = s.takeHere('+') || s.takeHere('-')
		return s.skipDigits()
	}
	return true
}

// takeHere consumes c, if it comes next without white space before it.
func (s *scanner) takeHere(c byte) bool {
	if s.at == len(s.text) || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) skipDigits() bool {
	start := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	return s.at > start
}
