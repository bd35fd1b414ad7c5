# prepare <folder> <optional or needed>: makes the bucket's folder. A folder that another user owns or may write to is
# refused by one line on standard error: scripts there would be under that user's control. An optional folder is not
# made: exit code 3 tells that there is none.
umask 022
[ "$2" != optional ] || [ -d "$1" ] || exit 3
mkdir -p "$1" || exit 1
found=$(ls -ldn "$1") || exit 1
set -- "$1" $found
case $2 in
d????-??-*) [ "$4" != "$(id -u)" ] || exit 0 ;;
esac
echo "$1 must be a folder of the user who runs commands there (number $(id -u)), with mode 0755 or less" >&2
exit 1
