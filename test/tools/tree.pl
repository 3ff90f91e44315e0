#!/usr/bin/perl
# Is every test complete, and will it be run? To be run in the top directory.
use strict;
use warnings;
use Test::More;

sub names
{
	my ($dir, $suffix) = @_;
	return sort map { m{([^/]+)\Q$suffix\E$} } glob "$dir/*$suffix";
}

sub slurp
{
	my ($file) = @_;
	open my $in, '<', $file or return '';
	local $/;
	return scalar <$in>;
}

# Names in one list and not in the other, and the other way round.
sub same_names
{
	my ($got, $expected, $what) = @_;
	my %got = map { $_ => 1 } @$got;
	my %expected = map { $_ => 1 } @$expected;
	my @problems = (
		(map { "lacking: $_" } grep { !$got{$_} } @$expected),
		(map { "left over: $_" } grep { !$expected{$_} } @$got));
	none(\@problems, $what);
}

sub none
{
	my ($problems, $what) = @_;
	ok(!@$problems, $what) or diag(join "\n", @$problems);
}

# name_1.out is an alternative to name.out
sub expected_names
{
	my ($dir, @tests) = @_;
	my %tests = map { $_ => 1 } @tests;
	return grep { !(/^(.*)_\d$/ && $tests{$1}) } names($dir, '.out');
}

my @regress = names('sql', '.sql');
same_names([ expected_names('expected', @regress) ],
	\@regress, 'each regress test has expected output');

SKIP:
{
	skip 'no sql/schedule: all tests run in the order of their names', 1
	  if !-f 'sql/schedule';
	my @scheduled =
	  map { split } map { /^test:(.*)/ } split /\n/, slurp('sql/schedule');
	is(join(' ', sort @scheduled),
		join(' ', @regress), 'the schedule has each regress test once');
}

my @specs = names('test/isolation/specs', '.spec');
same_names([ expected_names('test/isolation/expected', @specs) ],
	\@specs, 'each isolation spec has expected output');

# A file with another suffix would never run.
none([ grep { !/\.(sql|spec|pl|pm|md)$/ }
		  grep { -f } glob 'sql/extension/* test/pgtap/* test/isolation/specs/* test/t/*' ],
	'no test has a name that is not run');

none([ grep { !m{/(\d\d-[^/]*|durable--[^/]*--[^/]*)\.sql$} }
		  glob 'sql/extension/*.sql' ],
	'each file of sql/extension is part of the extension or an upgrade');

none([ grep { slurp($_) =~ /^\s*#.*\bPG_VERSION_NUM\b/m && !m{^src/compat\.h$} }
		  glob 'src/*.[ch] src/*/*.[ch]' ],
	'only src/compat.h asks for the server version');

my ($version) = slurp('durable.control') =~ /^default_version = '([^']+)'/m;
ok($version, 'the control file has the version');
none([ grep { slurp($_) =~ /\Q$version\E/ } qw(Makefile META.json.in) ],
	'and no file of the build has it again');

none([ grep { system("bash -n '$_'") }
		  grep { slurp($_) =~ /^#!.*bash/ || /\.sh$/ } glob 'test/tools/* .ci/*' ],
	'the shell scripts parse');

done_testing();
